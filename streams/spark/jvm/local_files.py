"""Hadoop's local files without an external process for each: permissions are set by Java itself.

Without its native library, Hadoop starts `chmod` for every file that it creates. Spark creates about ten checkpoint files in
each micro-batch, so these processes took a large part of a small micro-batch's time. The class below differs from Hadoop's
`LocalFileSystem` only in how it sets permissions; files, checksums and renames are the same. It is compiled by Janino, which is
part of Spark, and becomes the instance that Hadoop keeps for the scheme `file`. Only the driver's process has it: in local mode
that is the process that writes the files.
"""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CLASS = "streams.LocalFiles"
SOURCE = """
package streams;

public class LocalFiles extends org.apache.hadoop.fs.LocalFileSystem {
    public LocalFiles() { super(new Raw()); }

    public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(
            org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
        ) throws java.io.IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            java.nio.file.Files.setPosixFilePermissions(
                pathToFile(path).toPath(),
                java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
        }
    }
}
"""


def write_files_without_processes(session: SparkSession) -> bool:
    """Replaces Hadoop's local file system in the driver's process; returns whether that was possible."""
    jvm = session.sparkContext._jvm
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(SOURCE)
        conf = jvm.org.apache.hadoop.conf.Configuration(session.sparkContext._jsc.hadoopConfiguration())
        conf.setClassLoader(compiler.getClassLoader())
        conf.set("fs.file.impl", CLASS)
        files = jvm.org.apache.hadoop.fs.FileSystem
        local = jvm.java.net.URI.create("file:///")
        # Closing the instance that Hadoop keeps makes room for another one.
        files.get(local, conf).close()
        return str(files.get(local, conf).getClass().getName()) == CLASS
    except (Py4JError, TypeError) as error:
        log.debug("Hadoop's own local files are used: %s", error)
        return False
