#!/bin/sh
# Checks what must exist before anything can be installed: Python >= 3.10 (with venv) and Java >= 17.
#
# usage: check-prerequisites.sh [PYTHON]
#
# Prints the Python command to use on stdout: PYTHON when it is new enough, else the first of
# python3.12, python3.11, python3.10 that is. Complaints go to stderr, with exit code 1.
set -eu

problems=0

complain() {
    problems=1
    printf '\n%s\n' "$*" >&2
}

# Running the command, not looking it up: a shim on the PATH may exist for a version that is not installed.
is_new_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

wanted=${1:-python3}
python=
for candidate in "$wanted" python3.12 python3.11 python3.10; do
    if is_new_python "$candidate"; then
        python=$candidate
        break
    fi
done

if [ -z "$python" ]; then
    found=$("$wanted" --version 2>&1) || found="nothing that runs"
    complain "Python 3.10 or newer is needed, but '$wanted' is: $found.
  Install one (Debian/Ubuntu: apt install python3 python3-venv, macOS: brew install python@3.12),
  or name it: make PYTHON=/path/to/python3.12"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    complain "'$python' cannot make virtual environments (its venv or ensurepip module is missing).
  Debian/Ubuntu: apt install python3-venv"
fi

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    from="from JAVA_HOME"
else
    java=java
    from="from PATH"
fi

java_help="Spark 4 and the embedded Kafka broker need Java 17 or newer.
  Install one (Debian/Ubuntu: apt install openjdk-17-jre-headless, macOS: brew install openjdk@17),
  and put its bin folder on the PATH or set JAVA_HOME to its folder."

if ! java_output=$("$java" -version 2>&1); then
    complain "Java was not found ('$java', $from). $java_help"
else
    # 'openjdk version "17.0.15" 2025-04-15', 'java version "1.8.0_402"': the major version is 17, 8.
    java_version=$(printf '%s\n' "$java_output" | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
    major=$(printf '%s\n' "$java_version" | sed -e 's/^1\.//' -e 's/[^0-9].*//')
    if [ -z "$major" ]; then
        complain "'$java -version' ($from) prints no version that could be read: $java_output
  $java_help"
    elif [ "$major" -lt 17 ]; then
        complain "Java $java_version ('$java', $from) is too old. $java_help"
    fi
fi

[ "$problems" -eq 0 ] || exit 1
printf '%s\n' "$python"
