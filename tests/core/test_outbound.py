"""Where the coordinator may call out to, and how its requests are signed."""

import base64
import hashlib
import hmac
from ipaddress import ip_address

import pytest

from rota.core.outbound.signatures import (
    SignatureMismatch,
    check_signature,
    key_of,
    new_secret,
    signed_headers,
)
from rota.core.outbound.targets import (
    OutboundPolicy,
    check_literal,
    parse_target,
    policy_of,
    why_refused,
)
from rota.errors import Invalid

PUBLIC = OutboundPolicy()
SECRET = new_secret(bytes(range(32)))


# --- URLs ---------------------------------------------------------------------------------------


def test_a_url_is_taken_apart() -> None:
    target = parse_target("https://Hooks.Example.com./a/b?c=d")

    assert (target.is_tls, target.host, target.port) == (True, "hooks.example.com", 443)
    assert (target.authority, target.path) == ("hooks.example.com", "/a/b?c=d")
    assert parse_target("http://h:8080").authority == "h:8080"
    assert parse_target("http://h:80").path == "/"
    assert parse_target("http://[2001:DB8::1]:81/").authority == "[2001:db8::1]:81"
    assert target.place == "https://hooks.example.com"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com",
        "//example.com/",
        "example.com",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:word@example.com/",
        "http://127.0.0.1@example.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://example.com/#part",
        "http://example.com/a b",
        "http://example.com/a\r\nx: y",
        "http://example.com\\@127.0.0.1/",
        "http://exämple.com/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1.1/",
        "http://1.2.3.256/",
        "http://example.0x1/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.x]/",
        "http://-a.example/",
        "http://a..example/",
        "http://example.com/" + "a" * 2_000,
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_target(url)

    assert refused.value.facts["field"] == "url"


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    why = why_refused(PUBLIC, "name.example", ip_address(address))

    assert why is not None
    assert "outbound_allow" in why


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert why_refused(PUBLIC, "name.example", ip_address(address)) is None


def test_the_operator_lists_names_domains_addresses_and_networks() -> None:
    policy = policy_of("hooks.internal, *.lan 10.0.0.0/8,::1", is_closed=False)

    def is_allowed(host: str, address: str) -> bool:
        return why_refused(policy, host, ip_address(address)) is None

    assert is_allowed("hooks.internal", "192.168.0.1")
    assert is_allowed("a.lan", "127.0.0.1")
    assert is_allowed("b.a.lan", "127.0.0.1")
    assert not is_allowed("lan", "127.0.0.1")
    assert not is_allowed("evil-lan", "127.0.0.1")
    assert not is_allowed("x.hooks.internal", "127.0.0.1")
    assert is_allowed("any.example", "10.9.9.9")
    assert is_allowed("any.example", "::1")
    assert not is_allowed("any.example", "::ffff:10.0.0.1")
    assert is_allowed("any.example", "8.8.8.8")


def test_a_closed_list_refuses_what_it_does_not_name() -> None:
    policy = policy_of("hooks.example.com", is_closed=True)

    assert why_refused(policy, "hooks.example.com", ip_address("8.8.8.8")) is None
    assert why_refused(policy, "other.example.com", ip_address("8.8.8.8")) is not None
    with pytest.raises(Invalid):
        check_literal(policy, parse_target("https://other.example.com/"))


@pytest.mark.parametrize("entry", ["http://x", "10.0.0.1/8", "a b/c", "*", "0x7f.1", "-x", "x:80"])
def test_an_entry_that_is_no_host_or_network_is_refused(entry: str) -> None:
    with pytest.raises(Invalid, match="outbound_allow"):
        policy_of(entry, is_closed=False)


def test_a_literal_address_is_refused_when_it_is_stored() -> None:
    with pytest.raises(Invalid, match="not public"):
        check_literal(PUBLIC, parse_target("http://[::ffff:169.254.169.254]/latest"))
    with pytest.raises(Invalid, match=r"^url: 127\.0\.0\.1 is not public; "):
        check_literal(PUBLIC, parse_target("http://127.0.0.1:9999/"))
    check_literal(PUBLIC, parse_target("http://metadata.internal/"))  # known once it is resolved


# --- signatures ---------------------------------------------------------------------------------


def test_a_signature_is_that_of_standard_webhooks() -> None:
    headers = signed_headers(SECRET, "msg_1", b'{"a":1}', now_s=1_700_000_000)

    signed = b'msg_1.1700000000.{"a":1}'
    expected = base64.b64encode(hmac.new(bytes(range(32)), signed, hashlib.sha256).digest())
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{expected.decode()}",
    }
    check_signature(headers, b'{"a":1}', SECRET, now_s=1_700_000_299, tolerance_s=300)


def test_one_of_several_signatures_is_enough() -> None:
    headers = signed_headers(SECRET, "m", b"{}", now_s=100)
    headers["webhook-signature"] = "v2,x v1,AAAA " + headers["webhook-signature"]

    check_signature(headers, b"{}", SECRET, now_s=100, tolerance_s=1)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "n"},
        {"webhook-timestamp": "101"},
        {"webhook-timestamp": "1e2"},
        {"webhook-timestamp": "-100"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,ä"},
        {"webhook-signature": ""},
    ],
)
def test_what_was_changed_is_refused(change: dict[str, str]) -> None:
    headers = signed_headers(SECRET, "m", b"{}", now_s=100) | change

    with pytest.raises(SignatureMismatch):
        check_signature(headers, b"{}", SECRET, now_s=100, tolerance_s=300)


def test_a_changed_body_another_secret_and_an_old_request_are_refused() -> None:
    headers = signed_headers(SECRET, "m", b"{}", now_s=100)
    other = new_secret(bytes(32))

    for body, secret, now_s in ((b"{} ", SECRET, 100), (b"{}", other, 100), (b"{}", SECRET, 401)):
        with pytest.raises(SignatureMismatch):
            check_signature(headers, body, secret, now_s=now_s, tolerance_s=300)
    with pytest.raises(SignatureMismatch, match="no header"):
        check_signature({}, b"{}", SECRET, now_s=100, tolerance_s=300)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_????", "whsec_AAAA", "plain-text-secret", "whsec_ä"]
)
def test_a_weak_or_odd_secret_is_refused(secret: str) -> None:
    with pytest.raises(Invalid) as refused:
        key_of(secret)

    assert secret.removeprefix("whsec_") not in str(refused.value).split()
