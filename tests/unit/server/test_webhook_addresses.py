"""Which addresses webhooks reach, and how a post is signed."""

import pytest
from pydantic import ValidationError

from drumline.contracts import api
from drumline_server.scheduling.webhooks import sign, why_refused


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "203.0.113.7",
        "224.0.0.1",
        "255.255.255.255",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:1::",
        "ff02::1",
        "2001:db8::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert why_refused(address, ())


@pytest.mark.parametrize("address", ["8.8.8.8", "172.15.255.255", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_not(address: str) -> None:
    assert why_refused(address, ()) == ""


@pytest.mark.parametrize(
    ("address", "is_allowed"), [("10.2.3.4", True), ("::ffff:10.2.3.4", True), ("10.3.0.1", False), ("::1", False)]
)
def test_an_operator_allows_networks_and_no_others(address: str, is_allowed: bool) -> None:
    assert (why_refused(address, ("10.2.0.0/16", "fd00::/8")) == "") is is_allowed


def test_a_post_is_signed_as_the_tests_of_standard_webhooks_have_it() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example/",
        "https://",
        "https://me:pw@hooks.example/",
        "https://hooks.example/#part",
        "https://hooks.example:0/",
        "https://hooks.example:99999/",
        "https://[::1/",
        "https://hooks.example/ö",
        "https://hooks.example/a b",
        "https://hooks.example/" + "a" * 2_000,
    ],
)
def test_what_is_no_address_to_post_to_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        api.WebhookCreate(name="x", url=url)
