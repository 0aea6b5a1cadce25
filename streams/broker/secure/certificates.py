"""The certificates of a secured cluster, made by Java's `keytool`: an authority, and one certificate for all nodes.

`keytool` comes with every Java, so no further program or library is needed. Passwords are passed as files (`-storepass:file`),
because a command line can be read by every user of the machine.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from streams.broker.errors import BrokerStartError
from streams.broker.java import find_java
from streams.broker.ports import HOST

_AUTHORITY, _NODE = "ca", "broker"
NODE_PRINCIPAL = "CN=streams-broker"
"""The subject of the nodes' certificate, by which controllers know them."""
_DAYS = "3650"
_TIMEOUT_S = 120.0
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of a cluster's certificates.

    Attributes:
        folder: The folder of the files.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which clients must trust (PEM)."""
        return self.folder / "ca.pem"

    @property
    def authority_keys(self) -> Path:
        """The key store of the authority, which signs certificates (PKCS 12)."""
        return self.folder / "ca.p12"

    @property
    def node_keys(self) -> Path:
        """The nodes' key store (PKCS 12)."""
        return self.folder / "broker.p12"

    @property
    def password_file(self) -> Path:
        """The password of both key stores."""
        return self.folder / "keystore.password"

    def make(self) -> None:
        """Makes all certificates; the folder and the password file exist.

        Raises:
            BrokerStartError: `keytool` failed.
        """
        keys = ("-keystore", str(self.authority_keys), "-storetype", "PKCS12")
        signs = ("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign,cRLSign")
        self._keytool("-genkeypair", "-alias", _AUTHORITY, "-dname", "CN=streams-ca", *_KEY, *signs, *keys)
        names = ("-ext", f"san=ip:{HOST},dns:localhost")
        self._keytool(
            "-genkeypair", "-alias", _NODE, "-signer", _AUTHORITY, "-dname", NODE_PRINCIPAL, *_KEY, *names, *keys
        )
        source = (
            "-srckeystore",
            str(self.authority_keys),
            "-srcalias",
            _NODE,
            "-srcstorepass:file",
            str(self.password_file),
        )
        to = (
            "-destkeystore",
            str(self.node_keys),
            "-deststoretype",
            "PKCS12",
            "-deststorepass:file",
            str(self.password_file),
        )
        self._run("-importkeystore", *source, *to, "-noprompt")
        self._keytool("-exportcert", "-rfc", "-alias", _AUTHORITY, "-file", str(self.authority), *keys)

    def _keytool(self, *arguments: str) -> None:
        self._run(*arguments, "-storepass:file", str(self.password_file))

    def _run(self, *arguments: str) -> None:
        java = find_java()
        keytool = java.with_name("keytool") if java.is_absolute() else "keytool"
        command = [str(keytool), "-J-XX:TieredStopAtLevel=1", *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                umask=0o077,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise BrokerStartError(
                f"{keytool} could not be run ({error.strerror}): it comes with Java, and makes the certificates of a secured broker"
            ) from error
        if done.returncode != 0:
            raise BrokerStartError(f"{keytool} {arguments[0]} failed: {(done.stdout + done.stderr).strip()}")
