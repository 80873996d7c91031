"""Brokers are judged by their own name and version, as they stand in the first lines of INFO."""

import pytest

from drumline.contracts.brokers import Verdict, judge_banner, judge_info, judge_version

REDIS = """\
# Server\r
redis_version:{version}\r
redis_git_sha1:00000000\r
redis_git_dirty:0\r
redis_build_id:a5ba8be6be11d4e9\r
redis_mode:standalone\r
os:Linux 6.8.0-45-generic x86_64\r
arch_bits:64\r
monotonic_clock:POSIX clock_gettime\r
multiplexing_api:epoll\r
atomicvar_api:c11-builtin\r
gcc_version:12.2.0\r
process_id:1\r
process_supervised:no\r
run_id:f1d4c3e0bb5a7a0b7f8f2ac4b6bb9d9eb2f0a6c7\r
tcp_port:6379\r
executable:/data/redis-server\r
config_file:\r
"""
VALKEY = """\
# Server\r
redis_version:7.2.4\r
server_name:valkey\r
valkey_version:{version}\r
valkey_release_stage:{stage}\r
redis_git_sha1:00000000\r
redis_git_dirty:0\r
redis_build_id:1536df31c0395150\r
server_mode:standalone\r
os:Linux 6.8.0-45-generic x86_64\r
arch_bits:64\r
gcc_version:14.2.1\r
executable:/data/valkey-server\r
"""
VALKEY_7_2 = """\
# Server\r
redis_version:7.2.4\r
server_name:valkey\r
valkey_version:{version}\r
redis_git_sha1:00000000\r
redis_mode:standalone\r
gcc_version:12.2.0\r
executable:/data/valkey-server\r
"""
KEYDB = """\
# Server\r
redis_version:6.3.4\r
redis_git_sha1:7e7e5e57\r
redis_mode:standalone\r
os:Linux 6.8.0-45-generic x86_64\r
gcc_version:9.4.0\r
executable:/data/keydb-server\r
availability_zone:\r
features:cluster_mget\r
\r
# KeyDB\r
mvcc_depth:0\r
"""
DRAGONFLY = """\
# Server\r
redis_version:7.4.0\r
dragonfly_version:df-v1.27.1\r
redis_mode:standalone\r
arch_bits:64\r
os:Linux 6.8.0-45-generic x86_64\r
thread_count:8\r
multiplexing_api:iouring\r
tcp_port:6379\r
"""
KVROCKS = "# Server\r\nversion:2.9.0\r\nkvrocks_version:2.9.0\r\nredis_version:4.0.0\r\ngcc_version:11.4.0\r\n"


@pytest.mark.parametrize(
    "version", ["6.2.20", "6.2.21", "7.2.11", "7.4.6", "8.0.4", "8.2.2", "8.2.10", "8.4.0", "9.0.1"]
)
def test_a_redis_of_today_is_good(version: str) -> None:
    assert judge_info(REDIS.format(version=version)).verdict is Verdict.GOOD


@pytest.mark.parametrize(
    "version",
    ["2.8.24", "5.0.14", "6.0.20", "6.2.14", "6.2.19", "7.0.0", "7.0.15", "7.2.4", "7.2.10", "7.4.5", "8.0.3", "8.2.1"],
)
def test_an_old_redis_is_refused_by_name_with_what_to_install(version: str) -> None:
    judged = judge_info(REDIS.format(version=version))

    assert judged.verdict is Verdict.REFUSED
    assert judged.reason.startswith(f"Redis {version} is too old")
    assert "install Valkey 9, or 8.1.4, 8.0.6, 7.2.11" in judged.reason
    assert "8.2.2, 8.0.4, 7.4.6, 7.2.11, 6.2.20" in judged.reason


@pytest.mark.parametrize(
    "version",
    ["7.1.0", "7.3.241", "7.9.226", "8.3.224", "255.255.255", "8.4", "7.x", "", "9.0.0-rc1", "٨.٤.٠"],
)
def test_a_redis_of_no_known_line_is_warned_of(version: str) -> None:
    judged = judge_info(REDIS.format(version=version))
    assert (judged.verdict, "is not known to be safe" in judged.reason) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("version", ["8.0.6", "8.1.4", "8.1.5", "9.0.0", "9.1.2", "10.0.0"])
def test_a_valkey_of_today_is_good_though_it_calls_itself_redis_7_2_4(version: str) -> None:
    assert judge_info(VALKEY.format(version=version, stage="ga")).verdict is Verdict.GOOD


def test_a_valkey_of_the_first_line_is_judged_by_its_own_version() -> None:
    assert judge_info(VALKEY_7_2.format(version="7.2.11")).verdict is Verdict.GOOD
    old = judge_info(VALKEY_7_2.format(version="7.2.10"))
    assert (old.verdict, old.reason.startswith("Valkey 7.2.10 is too old")) == (Verdict.REFUSED, True)


@pytest.mark.parametrize("version", ["7.2.5", "8.0.0", "8.0.5", "8.1.0", "8.1.3"])
def test_an_old_valkey_is_refused(version: str) -> None:
    judged = judge_info(VALKEY.format(version=version, stage="ga"))
    assert (judged.verdict, judged.reason.split(" is ")[0]) == (Verdict.REFUSED, f"Valkey {version}")


@pytest.mark.parametrize(("version", "stage"), [("9.0.0", "rc1"), ("255.255.255", "dev"), ("8.2.0", "ga")])
def test_a_valkey_that_is_no_release_is_warned_of(version: str, stage: str) -> None:
    assert judge_info(VALKEY.format(version=version, stage=stage)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("text", "name"), [(KEYDB, "KeyDB 6.3.4"), (DRAGONFLY, "Dragonfly df-v1.27.1"), (KVROCKS, "Kvrocks 2.9.0")]
)
def test_another_server_is_warned_of_by_its_own_name(text: str, name: str) -> None:
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
        ("KeyDB server v=6.3.4 sha=7e7e5e57:0\n", Verdict.UNKNOWN),
        ("", Verdict.UNKNOWN),
    ],
)
def test_a_program_is_judged_by_what_it_prints(banner: str, verdict: Verdict) -> None:
    assert judge_banner(banner).verdict is verdict


def test_a_huge_number_is_no_version() -> None:
    assert judge_version("Redis", "9" * 300 + ".0.0").verdict is Verdict.UNKNOWN
