"""Flower's processes on a node, with three changes: they run the installed app, start warm, and wait less.

A SuperNode fetches messages. Below it a SuperExec has a process started for each. Flower would start that from nothing,
unpack the bundle of code that came from the server and import it. Ours is a copy of a process that has imported the
installed package already, and it looks at the bundle only to compare it.

::

    fedrecgel node
    └ SuperNode      run_supernode: Flower's own, which looks for messages more often while there are some
      └ store        answer_messages: the package, imported once; copies itself
        ├ SuperExec  Flower's own; says when a message waits
        └ ClientApp  answers it, and ends

Nothing here survives its parent.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from typing import Any

from fedrecgel.engine.flower.processes import die_with_parent
from fedrecgel.engine.flower.superlink import app_files
from fedrecgel.engine.flower.waits import Eager, fetch_sooner
from fedrecgel.errors import PolicyError, RunError

BUNDLE_BYTES = 1 << 20
"""More than any bundle of ours holds, unpacked."""
MANIFEST = ".info/CONTENT"
"""Flower's own list of what is in a bundle."""

log = logging.getLogger("flwr")  # stands in the log of the node


def run_supernode() -> None:
    """Flower's SuperNode, which looks for messages every three seconds by itself."""
    inner = import_module("flwr.supernode.start_client_internal")
    eager, fetch = Eager(), inner._pull_and_store_message

    def fetch_and_note(*args: Any, **words: Any) -> int | None:
        found: int | None = fetch(*args, **words)
        if found is not None:
            eager.happened()
        return found

    setattr(inner, "time", eager)  # noqa: B010 - it is a module of Flower's
    setattr(inner, "_pull_and_store_message", fetch_and_note)  # noqa: B010
    fetch_sooner()
    import_module("flwr.supernode.cli").flower_supernode()


def answer_messages(app: Any) -> None:
    """Go on as the store of a node: a SuperExec below it, and a copy of this process for every message.

    Args:
        app: Flower's ClientApp that answers.

    Raises:
        RunError: this version of Flower starts or loads apps in another way than those that were tested.
    """
    replace_loading(app)
    fetch_sooner()
    orders, to_store = os.pipe()
    if os.fork() == 0:
        os.close(orders)
        die_with_parent(signal.SIGKILL)
        _superexec(to_store)
        return
    os.close(to_store)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the node, and the node this
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    gc.freeze()  # copies share what nobody touches
    store = os.getpid()
    with os.fdopen(orders) as lines:
        for line in lines:
            if os.fork() == 0:
                die_with_parent(signal.SIGKILL)  # files are written atomically, so any moment will do
                if os.getppid() != store:
                    os._exit(1)  # it ended while this process began
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(json.loads(line))


def _superexec(to_store: int) -> None:
    """Flower's SuperExec, which starts nothing itself."""
    executor = import_module("flwr.supercore.superexec.executor")
    loop = import_module("flwr.supercore.superexec.run_superexec")
    eager = Eager()

    def launch(self: object, spec: Any) -> Any:
        eager.happened()
        order = {
            "address": spec.runtime_api_address,
            "token": spec.token,
            "insecure": spec.insecure,
            "certificates": spec.root_certificates_path,
        }
        os.write(to_store, json.dumps(order).encode() + b"\n")
        return executor.LaunchResult.accepted()

    # Whatever kind of app a server asks for: some of Flower's run code that the server sent.
    executor.SubprocessExecutor.launch = launch
    setattr(loop, "time", eager)  # noqa: B010 - it is a module of Flower's
    import_module("flwr.supercore.cli").flower_superexec()


def _answer(order: Mapping[str, Any]) -> None:
    """Fetch a message from the SuperNode, let the app answer it, hand the answer over; ends this process."""
    certificates = import_module("flwr.supercore.tls").validate_and_resolve_root_certificates
    code: object = 1
    try:
        import_module("flwr.supernode.runtime.run_clientapp").run_clientapp(
            runtime_api_address=order["address"],
            token=order["token"],
            insecure=order["insecure"],
            certificates=certificates(order["certificates"], order["insecure"]),
            parent_pid=os.getppid(),
            runtime_dependency_install=False,
        )
    except SystemExit as end:
        code = end.code
    finally:  # without the interpreter's own end, which would write to all the memory it shares
        os._exit(code if isinstance(code, int) else 1)


def replace_loading(app: Any) -> None:
    """Let Flower's ClientApp process compare the bundle, and run this app instead.

    Raises:
        RunError: this version of Flower does not start and load apps as those that were tested.
    """
    task = import_module("flwr.supernode.runtime.run_clientapp")
    executor = import_module("flwr.supercore.superexec.executor")
    known = {"install_from_fab", "get_load_client_app_fn", "run_clientapp"}
    if not known <= vars(task).keys() or not hasattr(getattr(executor, "SubprocessExecutor", None), "launch"):
        raise RunError("A node cannot tell how this version of Flower starts and loads apps. Take 1.41.")
    setattr(task, "install_from_fab", lambda content, **_: check_bundle(content))  # noqa: B010
    setattr(task, "get_load_client_app_fn", lambda **_: lambda *_: app)  # noqa: B010


def check_bundle(content: bytes) -> None:
    """Refuse a bundle that is not the one this package makes; it is compared, never unpacked to disk.

    Raises:
        PolicyError: it is another one.
    """
    known, found = _hash({name: text.encode() for name, text in app_files().items()}), bundle_hash(content)
    if found != known:
        log.warning("Refused a run whose app is not this package's: SHA-256 %s, not %s", found, known)
        raise PolicyError(
            f"A server should send the app that fedrecgel makes, SHA-256 {known}. Found {found}. Install the same "
            f"version on both sides; nothing of it was run."
        )


def bundle_hash(content: bytes) -> str:
    """SHA-256 of the files in a bundle: how they are compressed depends on the machine."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as bundle:
            if sum(part.file_size for part in bundle.infolist()) > BUNDLE_BYTES:
                return "of something larger"
            return _hash({name: bundle.read(name) for name in bundle.namelist() if name != MANIFEST})
    except Exception:  # whatever a hostile archive makes the reader raise
        return "of something unreadable"


def _hash(files: Mapping[str, bytes]) -> str:
    hashes = sorted([name, sha256(content).hexdigest()] for name, content in files.items())
    return sha256(json.dumps(hashes).encode()).hexdigest()
