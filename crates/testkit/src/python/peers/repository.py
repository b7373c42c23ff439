"""A repository behind git's own HTTP server program, which is run for every request as any web server would."""

import asyncio
import os
import shutil
import subprocess
import tempfile

AUTHOR = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@corp.example",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@corp.example",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(*words, cwd=None):
    subprocess.run(["git", *words], cwd=cwd, env={**os.environ, **AUTHOR}, check=True, stdout=subprocess.DEVNULL)


def make(path):
    with tempfile.TemporaryDirectory() as work:
        git("init", "-q", "-b", "main", work)
        with open(os.path.join(work, "read-me"), "w") as file:
            file.write("from the private forge\n")
        git("add", "read-me", cwd=work)
        git("commit", "-q", "-m", "first", cwd=work)
        shutil.rmtree(path, ignore_errors=True)
        git("clone", "-q", "--bare", work, path)
    git("config", "http.receivepack", "true", cwd=path)


async def serve(book, request, credential):
    body = await request.body()
    environment = {
        **os.environ,
        **AUTHOR,
        "GIT_PROJECT_ROOT": book.directory,
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.header("content-type") or "",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.header("content-encoding") or "",
        "GIT_PROTOCOL": request.header("git-protocol") or "",
        "REMOTE_USER": "agent",
    }
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    told, _ = await process.communicate(body)
    head, _, rest = told.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
    status = int(fields.pop("Status", "200").split()[0])
    kind = fields.pop("Content-Type", "text/plain")
    await request.answer(rest, status=status, kind=kind, headers=[(name.lower(), value) for name, value in fields.items()])
