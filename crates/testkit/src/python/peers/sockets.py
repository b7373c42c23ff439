"""A WebSocket that gives back what it gets, and says once with which credential it was opened."""

import http

from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed

HOST = "sockets.corp.example"


async def serve(book, context):
    def check(connection, request):
        headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
        found = book.admit(headers)
        book.write(host=HOST, path=request.path, http="1.1", credential=found, headers=headers)
        if found is None:
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "who are you?\n")
        connection.credential = found

    async def talk(connection):
        try:
            await connection.send(f"opened with {connection.credential}")
            async for message in connection:
                await connection.send(message)
        except ConnectionClosed:
            pass

    server = await listen(talk, "127.0.0.1", 0, ssl=context, process_request=check)
    serve.server = server
    return server.sockets[0].getsockname()[1]
