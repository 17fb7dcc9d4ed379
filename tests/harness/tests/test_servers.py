"""What `servers.py` promises to the suites that use it. Needs a server, and no module."""

from __future__ import annotations

import importlib.util
import pathlib
import socket
import unittest

_found = importlib.util.spec_from_file_location("servers", pathlib.Path(__file__).parents[1] / "servers.py")
assert _found is not None and _found.loader is not None
servers_module = importlib.util.module_from_spec(_found)
_found.loader.exec_module(servers_module)


class TestServers(unittest.TestCase):
    def setUp(self) -> None:
        self.servers = servers_module.Servers()
        self.addCleanup(self.servers.close)

    def test_a_reply_has_the_shape_the_server_gave_it(self) -> None:
        server = self.servers.start(without_module=True)
        self.assertEqual(server.say("SET", "text", "grün"), "OK")
        self.assertEqual(server.say("SET", "bytes", b"\xff\x00"), "OK")
        self.assertEqual(server.say("MGET", "text", "bytes", "nothing"), ["grün", b"\xff\x00", None])
        self.assertEqual(server.say("INCRBY", "n", 42), 42)
        self.assertEqual(server.say("CONFIG", "GET", "timeout", resp3=True), {"timeout": "0"})
        with self.assertRaisesRegex(servers_module.Refused, "^WRONGTYPE "):
            server.say("LPUSH", "text", "x")

    def test_a_killed_server_comes_back_where_it_was(self) -> None:
        config = {"appendonly": "yes", "appendfsync": "always"}
        server = self.servers.start(without_module=True, config=config)
        url, pid = server.url, server.pid
        server.say("SET", "kept", "1")
        server.kill()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        server.restart()
        self.assertEqual(server.url, url)
        self.assertNotEqual(server.pid, pid)
        self.assertEqual(server.say("GET", "kept"), "1")
        server.restart_orderly()
        self.assertEqual(server.say("GET", "kept"), "1")

    def test_a_paused_server_goes_on_when_it_is_resumed(self) -> None:
        server = self.servers.start(without_module=True)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            server.pause()
            connection.settimeout(0.1)
            connection.sendall(b"PING\r\n")
            with self.assertRaises(socket.timeout):
                connection.recv(7)
            server.resume()
            connection.settimeout(10)
            self.assertEqual(connection.recv(7), b"+PONG\r\n")

    def test_a_replica_has_what_its_primary_has(self) -> None:
        primary = self.servers.start(without_module=True)
        replica = primary.replica(without_module=True)
        primary.say("SET", "new", "1")
        primary.wait_for_sync(replica)
        self.assertEqual(replica.say("GET", "new"), "1")
        self.assertIn("REPLICA", replica.log().upper())

    def test_an_impossible_request_is_an_error_and_the_next_works(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "nosuch"):
            self.servers.start(flavor="nosuch", without_module=True)
        server = self.servers.start(without_module=True)
        server.stop()
        with self.assertRaisesRegex(RuntimeError, "there is no server"):
            server.say("PING")


if __name__ == "__main__":
    unittest.main()
