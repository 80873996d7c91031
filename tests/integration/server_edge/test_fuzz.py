"""Requests made from the description of the API, good and bad: none may end in an error of the server."""

from fuzz.campaign import Campaign
from fuzz.world import World
from support.edge import EdgeServer

REQUESTS = 300
"""A share of what `make fuzz` asks."""


def test_no_request_ends_in_an_error_of_the_server(server: EdgeServer) -> None:
    report = Campaign(World(server)).run(REQUESTS)

    assert report.requests >= REQUESTS
    assert not report.failures, report.failures[:3]
    assert report.statuses["2xx"] > REQUESTS / 10, "most is refused before it comes to anything"
