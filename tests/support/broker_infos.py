"""What brokers answer to INFO, as people pasted it into public trackers.

Version, build and place are as each server printed them, in its order; what tells of one machine (ids, ports, times) is
left out. The comment beside each names where it was seen.
"""


def _answer(text: str) -> str:
    """As it comes over the wire."""
    return text.replace("\n", "\r\n")


# redis/redis#13208
REDIS_6_2_6 = _answer("""\
# Server
redis_version:6.2.6
redis_git_sha1:00000000
redis_git_dirty:0
redis_build_id:e15ab29abece34d
redis_mode:standalone
os:Linux 5.10.0-8-2-amd64 x86_64
arch_bits:64
multiplexing_api:epoll
atomicvar_api:c11-builtin
""")
# redis/redis#14030
REDIS_7_2_4 = _answer("""\
# Server
redis_version:7.2.4
redis_git_sha1:d2c8a4b9
redis_git_dirty:0
redis_build_id:d8528b58c45a3db6
redis_mode:standalone
os:Linux 4.18.0-425.3.1.el8.x86_64 x86_64
arch_bits:64
monotonic_clock:POSIX clock_gettime
multiplexing_api:epoll
atomicvar_api:c11-builtin
gcc_version:8.5.0
process_supervised:no
io_threads_active:0
""")
# the example of INFO in the documentation of Redis
REDIS_7_4_0 = _answer("""\
# Server
redis_version:7.4.0
redis_git_sha1:c9d29f6a
redis_git_dirty:0
redis_build_id:4c367a16e3f9616
redis_mode:standalone
""")
# redis/redis#14267
REDIS_8_0_2 = _answer("""\
# Server
redis_version:8.0.2
redis_git_sha1:00000000
redis_git_dirty:0
redis_build_id:71612ef3aa33f91a
redis_mode:standalone
os:Linux 5.14.0-570.22.1.el9_6.x86_64 x86_64
arch_bits:64
monotonic_clock:POSIX clock_gettime
multiplexing_api:epoll
atomicvar_api:c11-builtin
gcc_version:11.5.0
process_supervised:no
executable:/usr/local/bin/redis-server
config_file:/etc/redis/redis_6379.conf
io_threads_active:1
""")
# redis/redis#15175
REDIS_8_6_3 = _answer("""\
# Server
redis_version:8.6.3
redis_git_sha1:00000000
redis_git_dirty:1
redis_build_id:60bd3a4799e257b5
redis_mode:standalone
os:Linux 7.0.0-1009-raspi aarch64
arch_bits:64
monotonic_clock:ARM CNTVCT @ 54 ticks/us
multiplexing_api:epoll
atomicvar_api:c11-builtin
gcc_version:15.2.0
process_supervised:no
executable:/data/redis-server
config_file:
io_threads_active:0
""")
# a repository's notes on its move to valkey/valkey:7.2
VALKEY_7_2_11 = _answer("""\
# Server
redis_version:7.2.4
server_name:valkey
valkey_version:7.2.11
redis_git_sha1:00000000
redis_git_dirty:0
redis_build_id:f2f6cd07ba0f659f
redis_mode:standalone
os:Linux 6.11.0-1018-azure x86_64
arch_bits:64
monotonic_clock:POSIX clock_gettime
multiplexing_api:epoll
atomicvar_api:c11-builtin
gcc_version:14.2.0
process_supervised:no
""")
# valkey-io/valkey#1775
VALKEY_8_0_2 = _answer("""\
# Server
redis_version:7.2.4
server_name:valkey
valkey_version:8.0.2
redis_git_sha1:00000000
redis_git_dirty:1
redis_build_id:5ef9bd703e631fff
server_mode:standalone
os:Linux 5.14.0-503.14.1.el9_5.x86_64 x86_64
arch_bits:64
monotonic_clock:POSIX clock_gettime
multiplexing_api:epoll
gcc_version:14.2.1
process_supervised:no
io_threads_active:0
availability_zone:
""")
# a README that says which server it was tried with
VALKEY_8_1_1 = _answer("""\
# Server
redis_version:7.2.4
server_name:valkey
valkey_version:8.1.1
valkey_release_stage:ga
""")
# valkey-io/valkey-bundle#10
VALKEY_9_0_0_RC1 = _answer("""\
# Server
redis_version:7.2.4
server_name:valkey
valkey_version:9.0.0
valkey_release_stage:rc1
redis_git_sha1:00000000
redis_git_dirty:0
""")
# valkey-io/valkey#1883: in the place of a KeyDB, under its name
VALKEY_DEVELOPED = _answer("""\
# Server
redis_version:7.2.4
server_name:valkey
valkey_version:255.255.255
valkey_release_stage:dev
redis_git_sha1:00000000
redis_git_dirty:0
redis_build_id:4ab6d72c811767e7
server_mode:cluster
os:Linux 5.10.234-225.910.amzn2.aarch64 aarch64
arch_bits:64
monotonic_clock:POSIX clock_gettime
multiplexing_api:epoll
gcc_version:14.2.0
process_supervised:no
executable:/data/keydb-server
io_threads_active:1
availability_zone:us-east-1b
""")
# Snapchat/KeyDB#981
KEYDB_6_3_4 = _answer("""\
# Server
redis_version:6.3.4
redis_git_sha1:7e7e5e57
redis_git_dirty:1
redis_build_id:bb8fc59400781b64
redis_mode:standalone
os:Linux 6.6.114.1-microsoft-standard-WSL2 x86_64
arch_bits:64
multiplexing_api:epoll
atomicvar_api:atomic-builtin
gcc_version:9.4.0
process_supervised:no
executable:/data/keydb-server
""")
# Snapchat/KeyDB#874 for the server, #628 for the last section, which names it where the executable does not
KEYDB_6_3_4_ELSEWHERE = _answer("""\
# Server
redis_version:6.3.4
redis_git_sha1:7e7e5e57
redis_git_dirty:1
redis_build_id:eddbc1b3c341a077
redis_mode:standalone
os:Linux 6.11.9-orbstack-00279-g4cf512143f2e aarch64
arch_bits:64
multiplexing_api:epoll
atomicvar_api:atomic-builtin
gcc_version:7.5.0

# KeyDB
mvcc_depth:1
""")
# dragonflydb/dragonfly#2599
DRAGONFLY_1_14_3 = _answer("""\
# Server
redis_version:6.2.11
dragonfly_version:df-v1.14.3
redis_mode:standalone
arch_bits:64
os:Linux 5.10.0-28-amd64 x86_64
multiplexing_api:epoll
thread_count:8
""")
# dragonflydb/dragonfly#3895
DRAGONFLY_1_23_0 = _answer("""\
# Server
redis_version:6.2.11
dragonfly_version:df-v1.23.0
redis_mode:cluster
arch_bits:64
os:Linux 5.10.0-30-amd64 x86_64
multiplexing_api:epoll
thread_count:40
""")
