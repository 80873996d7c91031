"""Brokers are judged by their own name and version, as they stand in the first lines of INFO."""

import pytest

from drumline.contracts.brokers import Verdict, judge_banner, judge_info, judge_version
from support import broker_infos as infos

# No paste of Kvrocks was found: its fields in the order in which apache/kvrocks writes them.
KVROCKS = (
    "# Server\r\nversion:2.9.0\r\nkvrocks_version:2.9.0\r\nredis_version:4.0.0\r\ngit_sha1:00000000\r\n"
    "kvrocks_git_sha1:00000000\r\nredis_mode:standalone\r\nkvrocks_mode:standalone\r\ngcc_version:11.4.0\r\n"
)


def redis_at(version: str) -> str:
    """As Redis 8.0.2 answered, of another version."""
    return infos.REDIS_8_0_2.replace("8.0.2", version)


def valkey_at(version: str, stage: str = "ga") -> str:
    """As Valkey 8.1.1 answered, of another version."""
    return infos.VALKEY_8_1_1.replace("8.1.1", version).replace("stage:ga", f"stage:{stage}")


@pytest.mark.parametrize("text", [infos.REDIS_8_6_3, infos.VALKEY_7_2_11])
def test_a_server_without_the_hole_is_good_as_it_was_seen(text: str) -> None:
    assert judge_info(text).verdict is Verdict.GOOD


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (infos.REDIS_6_2_6, "Redis 6.2.6"),
        (infos.REDIS_7_2_4, "Redis 7.2.4"),
        (infos.REDIS_7_4_0, "Redis 7.4.0"),
        (infos.REDIS_8_0_2, "Redis 8.0.2"),
        (infos.VALKEY_8_0_2, "Valkey 8.0.2"),
        (infos.VALKEY_8_1_1, "Valkey 8.1.1"),
    ],
)
def test_a_server_with_the_hole_is_refused_as_it_was_seen(text: str, name: str) -> None:
    judged = judge_info(text)
    assert (judged.verdict, judged.reason.split(" is ")[0]) == (Verdict.REFUSED, name)


@pytest.mark.parametrize(
    "version", ["6.2.20", "6.2.21", "7.2.11", "7.4.6", "8.0.4", "8.2.2", "8.2.10", "8.4.0", "9.0.1"]
)
def test_a_redis_of_today_is_good(version: str) -> None:
    assert judge_info(redis_at(version)).verdict is Verdict.GOOD


@pytest.mark.parametrize(
    "version",
    ["2.8.24", "5.0.14", "6.0.20", "6.2.14", "6.2.19", "7.0.0", "7.0.15", "7.2.4", "7.2.10", "7.4.5", "8.0.3", "8.2.1"],
)
def test_an_old_redis_is_refused_by_name_with_what_to_install(version: str) -> None:
    judged = judge_info(redis_at(version))

    assert judged.verdict is Verdict.REFUSED
    assert judged.reason.startswith(f"Redis {version} is too old")
    assert "install Valkey 9, or 8.1.4, 8.0.6, 7.2.11" in judged.reason
    assert "8.2.2, 8.0.4, 7.4.6, 7.2.11, 6.2.20" in judged.reason


@pytest.mark.parametrize(
    "version",
    ["7.1.0", "7.3.241", "7.9.226", "8.3.224", "255.255.255", "8.4", "7.x", "", "9.0.0-rc1", "٨.٤.٠"],
)
def test_a_redis_of_no_known_line_is_warned_of(version: str) -> None:
    judged = judge_info(redis_at(version))
    assert (judged.verdict, "is not known to be safe" in judged.reason) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("version", ["8.0.6", "8.1.4", "8.1.5", "9.0.0", "9.1.2", "10.0.0"])
def test_a_valkey_of_today_is_good_though_it_calls_itself_redis_7_2_4(version: str) -> None:
    assert judge_info(valkey_at(version)).verdict is Verdict.GOOD


def test_a_valkey_of_the_first_line_is_judged_by_its_own_version() -> None:
    old = judge_info(infos.VALKEY_7_2_11.replace("7.2.11", "7.2.10"))
    assert (old.verdict, old.reason.startswith("Valkey 7.2.10 is too old")) == (Verdict.REFUSED, True)


@pytest.mark.parametrize("version", ["7.2.5", "8.0.0", "8.0.5", "8.1.0", "8.1.3"])
def test_an_old_valkey_is_refused(version: str) -> None:
    judged = judge_info(valkey_at(version))
    assert (judged.verdict, judged.reason.split(" is ")[0]) == (Verdict.REFUSED, f"Valkey {version}")


@pytest.mark.parametrize(("version", "stage"), [("9.0.0", "rc1"), ("255.255.255", "dev"), ("8.2.0", "ga")])
def test_a_valkey_that_is_no_release_is_warned_of(version: str, stage: str) -> None:
    assert judge_info(valkey_at(version, stage)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (infos.KEYDB_6_3_4, "KeyDB 6.3.4"),
        (infos.KEYDB_6_3_4_ELSEWHERE, "KeyDB 6.3.4"),
        (infos.DRAGONFLY_1_14_3, "Dragonfly df-v1.14.3"),
        (infos.DRAGONFLY_1_23_0, "Dragonfly df-v1.23.0"),
        (KVROCKS, "Kvrocks 2.9.0"),
        (infos.VALKEY_9_0_0_RC1, "Valkey 9.0.0-rc1"),
        (infos.VALKEY_DEVELOPED, "Valkey 255.255.255-dev"),
    ],
)
def test_another_server_and_what_is_no_release_are_warned_of_by_their_own_names(text: str, name: str) -> None:
    judged = judge_info(text)
    assert (judged.verdict, judged.reason.split(" is ")[0]) == (Verdict.UNKNOWN, name)


@pytest.mark.parametrize("text", ["", "# Server\r\n", "hello", "redis_version", "x" * 1_000_000, "\0\n" * 70_000])
def test_what_does_not_say_what_it_is_is_warned_of(text: str) -> None:
    assert judge_info(text).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("banner", "verdict"),
    [
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150\n", Verdict.GOOD),
        (
            "Redis server v=7.0.15 sha=00000000:0 bits=64 build=d81b8ff71cfb150e\n",
            Verdict.REFUSED,
        ),
        ("Redis server v=8.2.2 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64 build=1\n", Verdict.GOOD),
        ("KeyDB server v=6.3.4 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=b532cd0401cb0da4\n", Verdict.UNKNOWN),
        ("", Verdict.UNKNOWN),
    ],
)
def test_a_program_is_judged_by_what_it_prints(banner: str, verdict: Verdict) -> None:
    assert judge_banner(banner).verdict is verdict


def test_a_huge_number_is_no_version() -> None:
    assert judge_version("Redis", "9" * 300 + ".0.0").verdict is Verdict.UNKNOWN
