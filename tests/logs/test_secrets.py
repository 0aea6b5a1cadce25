"""What is a secret, and that it is masked by its name, by its value and by its form."""

from __future__ import annotations

import re

import orjson
import pytest

from state.secrets import MASK, SPARK_PATTERN, mask, mask_line, redact, remember

SECRET = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.key.pem",
    "ssl.key",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.jaas.config",
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "spark.authenticate.secret",
    "spark.executorEnv.DB_PASSWORD",
    "spark.executorEnv.API_KEY",
]
HARMLESS = {
    "bootstrap.servers": "h:1",
    "sasl.username": "u",
    "sasl.oauthbearer.token.endpoint.url": "http://x",
    "ssl.key.location": "/keys/client.key",
    "spark.executor.memory": "1g",
}


@pytest.mark.parametrize("name", SECRET)
def test_a_property_with_a_secret_is_masked_by_its_name(name: str) -> None:
    assert redact({name: "s", **HARMLESS}) == {name: MASK, **HARMLESS}


@pytest.mark.parametrize("name", [name for name in SECRET if name.startswith("spark.")])
def test_spark_s_own_pattern_finds_the_same_settings(name: str) -> None:
    assert re.search(SPARK_PATTERN, name)
    assert re.search(SPARK_PATTERN, "https://user:s@host/path")
    assert not [
        text for item in HARMLESS.items() for text in item if re.search(SPARK_PATTERN, text.replace("token", ""))
    ]


def test_a_password_inside_an_address_is_masked_whatever_the_property_is_called() -> None:
    shown = redact({"snapshot_dir": "s3://key:canary@host/bucket", "url": "https://host:9092/a:b@c"})
    assert shown == {"snapshot_dir": f"s3://key:{MASK}@host/bucket", "url": "https://host:9092/a:b@c"}


def test_the_value_of_a_secret_is_masked_in_every_text() -> None:
    remember({"sasl.password": "can/ary", "bootstrap.servers": "host:9092"})
    assert mask("login as u with can/ary at host:9092") == f"login as u with {MASK} at host:9092"
    assert mask_line(b"java says can/ary\xff") == f"java says {MASK}".encode() + b"\xff"


def test_a_value_is_also_found_with_the_escapes_of_json_and_of_repr() -> None:
    secret = 'can"ary\\\n\u00e9'
    remember({"sasl.password": secret})
    assert mask(orjson.dumps({"a": secret}).decode()) == f'{{"a":"{MASK}"}}'
    assert mask(repr([secret])) == f"['{MASK}']"


def test_the_password_in_a_login_module_or_login_or_address_is_a_secret_of_its_own() -> None:
    remember({"sasl.jaas.config": 'a.b.LoginModule required username="u" password="canary-1";'})
    remember({"basic.auth.user.info": "user:canary-2", "schema.url": "https://user:canary-3@host"})
    assert mask("canary-1 canary-2 canary-3 user") == f"{MASK} {MASK} {MASK} user"


def test_a_very_short_value_is_not_searched_in_texts() -> None:
    remember({"sasl.password": "abc"})
    assert mask("the abc of it") == "the abc of it"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://u:canary@host:8081/x", f"see https://u:{MASK}@host:8081/x"),
        ("-Dfoo.password=canary -Dx=1", f"-Dfoo.password={MASK} -Dx=1"),
        ("sasl.password = canary", f"sasl.password = {MASK}"),
        ('{"sasl.password": "can ary", "x": 1}', f'{{"sasl.password": {MASK}, "x": 1}}'),
        ("-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----", None),
        ("nothing of the sort: a=b, http://host/path@x", "nothing of the sort: a=b, http://host/path@x"),
        ("Password must be set", "Password must be set"),
    ],
)
def test_what_has_the_form_of_a_secret_is_masked(text: str, shown: str | None) -> None:
    assert "canary" not in mask(text)
    assert "can ary" not in mask(text)
    if shown is not None:
        assert mask(text) == shown
