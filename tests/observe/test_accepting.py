"""A socket that takes connections while this process has no descriptor free, with real sockets in a process of its own.

Here: waiting, going on, what is told. Not here: pages (test_pages.py), an agent with many node ports
(tests/agent/test_services_descriptors.py).
"""

import subprocess
import sys

SCENE = """
import asyncio, os, resource, socket
from podgate.observe import accepting
from podgate.observe.accepting import Accepting, Shortage

class Greet(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()

accepting.CALM = 0.5
tolds, problems = [], []

class Counted(Shortage):
    met = 0
    def meet(self, error):
        self.met += 1
        super().meet(error)

def bound():
    made = socket.create_server(("127.0.0.1", 0), backlog=1024)
    return made, made.getsockname()

def client(address):
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(address)
    return made

async def read(made):
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(made, 100), 20)
    except ConnectionResetError:
        return b"reset"

def fill():
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        return held

async def until(done):
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)
"""

NO_DESCRIPTOR = """
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: problems.append(context))
    shortage = Counted(tolds.append)
    one, two = bound(), bound()
    both = [Accepting(each[0], Greet, shortage) for each in (one, two)]
    clients = [client(address) for _, address in (one, two) for _ in range(20)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    held = fill()
    await until(lambda: tolds)
    await asyncio.sleep(accepting.PAUSE * 2)
    print("asked again and again" if shortage.met > 100 else "quiet")
    for each in held:
        os.close(each)
    print({await read(each) for each in clients})
    await until(lambda: len(tolds) == 2)
    print(tolds, problems)
    for each in both:
        each.close()

asyncio.run(main())
"""

CLOSED_MEANWHILE = """
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: problems.append(context))
    shortage = Shortage(tolds.append)
    listening, address = bound()
    it = Accepting(listening, Greet, shortage)
    waiting = client(address)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    held = fill()
    await until(lambda: tolds)
    it.close()
    shortage.forget()
    for each in held:
        os.close(each)
    print(await read(waiting))
    await asyncio.sleep(accepting.PAUSE * 2)
    print(len(tolds), problems)

asyncio.run(main())
"""

NOT_SERVED = """
async def main():
    listening, address = bound()
    it = Accepting(listening, lambda: None, Shortage(tolds.append))
    print(await read(client(address)))
    it.close()

asyncio.run(main())
"""


def played(scene: str) -> list[str]:
    """Play a scene in a process of its own, which has a limit of its own; give its lines."""
    done = subprocess.run(
        [sys.executable, "-c", SCENE + scene], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_clients_wait_for_a_descriptor_and_one_line_begins_and_one_ends_the_trouble() -> None:
    assert played(NO_DESCRIPTOR) == [
        "quiet",
        "{b'hello'}",
        "['new connections wait: Too many open files', ''] []",
    ]


def test_a_socket_that_closes_while_clients_wait_refuses_them_and_says_no_more() -> None:
    assert played(CLOSED_MEANWHILE) == ["b'reset'", "1 []"]


def test_a_connection_without_a_protocol_is_reset() -> None:
    assert played(NOT_SERVED) == ["b'reset'"]
