#!/usr/bin/env python3
"""The house rules hold, and each rule goes red on a planted violation."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import house_rules  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Planted(unittest.TestCase):
    def found(self, path, line):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            for room in {path.split("/")[0]}:
                if room in house_rules.TOP_LEVEL:
                    open(os.path.join(root, room, "README.md"), "w").close()
            with open(os.path.join(root, path), "w") as out:
                out.write(line + "\n")
            return list(house_rules.violations(root))

    def test_router_may_not_include_replica(self):
        self.assertTrue(self.found("router/policy/x.cc", '#include "replica/kv/block_manager.h"'))

    def test_replica_may_not_include_router(self):
        self.assertTrue(self.found("replica/server/x.cc", '#include "router/router.h"'))

    def test_core_may_not_include_shell_or_proto(self):
        self.assertTrue(self.found("router/fleet/x.h", '#include "common/net/http_server.h"'))
        self.assertTrue(self.found("router/fleet/x.h", '#include "kvring/v1/fleet.pb.h"'))
        self.assertTrue(self.found("replica/engine/x.h", '#include "replica/model/tokenizer.h"'))

    def test_pure_rooms_reach_nothing(self):
        for line in ["auto t = std::chrono::steady_clock::now();", "#include <thread>", "std::random_device d;",
                     '#include "kvring/v1/admin.grpc.pb.h"', "#include <sys/socket.h>", 'getenv("X")', "absl::Mutex m;"]:
            self.assertTrue(self.found("router/policy/x.cc", line), line)

    def test_words(self):
        for line in ["// TO" + "DO later", "std::this_thread::sleep_" + "for(x);", "t.detach" + "();"]:
            self.assertTrue(self.found("deploy/x.cc", line), line)

    def test_strange_top_level(self):
        self.assertTrue(self.found("utils/x.cc", "int x;"))

    def test_allowed_lines_are_quiet(self):
        self.assertEqual(self.found("router/policy/x.cc", '#include "router/fleet/replica.h"'), [])
        self.assertEqual(self.found("common/runtime/x.cc", "auto t = std::chrono::steady_clock::now();"), [])
        self.assertEqual(self.found("replica/server/x.cc", '#include "kvring/v1/inference.pb.h"'), [])


class House(unittest.TestCase):
    def test_the_tree(self):
        found = list(house_rules.violations(ROOT))
        self.assertEqual(found, [], "\n".join(found))


if __name__ == "__main__":
    unittest.main()
