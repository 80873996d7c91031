"""Webhooks from the command line and the SDK, against a server that posts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline import Client
from drumline.contracts import api
from drumline.errors import ConflictError, NotFoundError, OptionError
from support.clock import RunningClock
from support.command_line import Cli
from support.edge import EdgeServer, Setup, edge_server
from support.receiver import receiver, status


@pytest.fixture
def edge(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    settings = {"loops": True, "webhook_http": True, "webhook_networks": "127.0.0.0/8"}
    with edge_server(sqlite_url, tmp_path / "server", Setup(clock=RunningClock()), **settings) as running:
        yield running


@pytest.fixture
def server(edge: EdgeServer) -> EdgeServer:
    """What the command line of these tests talks to."""
    return edge


def test_the_command_line_makes_tests_changes_and_deletes_a_webhook(cli: Cli) -> None:
    with receiver(status(500, "no"), status(204)) as there:
        assert cli("webhooks", "create", "ops", there.url, "--alert", "run.failed", "--job", "digits", "--json") == 0
        secret = json.loads(cli.out)["secret"]
        assert cli("webhooks", "test", "ops") == 1
        assert cli.out == "given_up  answered 500: no\n"
        cli("webhooks")
        assert "failing" in cli.out
        assert "ops: answered 500: no" in cli.out
        assert secret not in cli.out
        assert cli("webhooks", "test", "ops") == 0
        assert there.received[1].is_signed_with(secret)

    assert cli("webhooks", "change", "ops", "--off", "--job", "", "--name", "night") == 0
    assert cli.out == "night  off\n"
    assert cli("webhooks", "change", "night") == 2
    assert cli("webhooks", "deliveries", "night") == 0
    assert cli.out.count("test") == 2
    assert cli("webhooks", "delete", "ops") == 2
    assert "there are: night" in cli.err
    assert cli("webhooks", "delete", "night") == 0
    assert cli("webhooks") == 0
    assert "webhooks create NAME ADDRESS" in cli.err


def test_a_second_webhook_of_a_name_is_refused_with_the_first(cli: Cli, edge: EdgeServer) -> None:
    with Client(edge.url, edge.admin_token) as client:
        first = client.webhooks.create("ops", "https://hooks.example/x")
        other = client.webhooks.create("night", "https://hooks.example/x")
        for arguments in (("create", "ops", "https://hooks.example/y"), ("change", "night", "--name", "ops")):
            assert cli("webhooks", *arguments) == 2
            assert f"The project has a webhook 'ops' already: {first.id}." in cli.err
        with pytest.raises(ConflictError):
            client.webhooks.change(other.id, name="ops")
        assert client.webhooks.change(first.id, name="ops", enabled=False).enabled is False
        client.webhooks.delete(first.id)
        assert client.webhooks.change(other.id, name="ops").name == "ops"


def test_a_secret_is_replaced_and_the_one_before_is_good_for_a_while(cli: Cli, edge: EdgeServer) -> None:
    with receiver() as there, Client(edge.url, edge.admin_token) as client:
        first = client.webhooks.create("ops", there.url)
        second = client.webhooks.replace_secret(first.id)
        client.webhooks.test(first.id)
        assert cli("webhooks", "replace-secret", "ops", "--keep-old", "0s") == 0
        assert "good until" not in cli.out
        third = cli.out.removeprefix("secret, shown only now: ").strip()
        client.webhooks.test(first.id)
        with pytest.raises(OptionError, match="keep_old_s"):
            client.webhooks.replace_secret(first.id, keep_old_s=8 * 86_400)
        assert cli("webhooks", "replace-secret", "ops", "--keep-old", "1h", "--json") == 0
        assert json.loads(cli.out)["old_secret_until"] is not None

    secrets = [first.secret.get_secret_value(), second.secret.get_secret_value(), third]
    assert len(set(secrets)) == 3
    assert second.old_secret_until is not None
    assert [post.is_signed_with(secret) for post in there.received for secret in secrets] == [
        True, True, False,
        False, False, True,
    ]  # fmt: skip


def test_the_client_has_the_same(edge: EdgeServer) -> None:
    with receiver() as there, Client(edge.url, edge.admin_token) as client:
        made = client.webhooks.create("ops", there.url, alerts=[api.AlertKind.FAILED, "run.stalled"])
        assert client.webhooks.test(made.id).state is api.DeliveryState.DELIVERED
        assert client.webhooks.change(made.id, alerts=["run.failed"]).alerts == (api.AlertKind.FAILED,)
        assert [each.alert for each in client.webhooks.deliveries(made.id)] == ["test"]
        assert [each.name for each in client.webhooks] == ["ops"]
        client.webhooks.delete(made.id)
        with pytest.raises(NotFoundError):
            client.webhooks.change(made.id, enabled=False)
        with pytest.raises(OptionError, match="pass a list"):
            client.webhooks.create("ops", there.url, alerts="run.failed")
        with pytest.raises(OptionError, match="url"):
            client.webhooks.create("ops", "ftp://x")
