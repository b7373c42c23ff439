"""A gRPC service of two methods: one that answers, one that streams. Messages are plain bytes."""

import asyncio

import grpc
import grpc.aio

HOST = "rpc.corp.example"


async def serve(book, leaf):
    async def credential(context, method):
        headers = [(key, value) for key, value in context.invocation_metadata()]
        found = book.admit(headers)
        book.write(host=HOST, path=method, http="2", credential=found, headers=headers)
        if found is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        return found

    async def say(message, context):
        found = await credential(context, "/corp.Echo/Say")
        context.set_trailing_metadata((("x-saw", found),))
        return b"you said " + message + b" with " + found.encode()

    async def count(message, context):
        await credential(context, "/corp.Echo/Count")
        for n in range(int(message)):
            yield str(n).encode()
            await asyncio.sleep(0.01)

    methods = {
        "Say": grpc.unary_unary_rpc_method_handler(say),
        "Count": grpc.unary_stream_rpc_method_handler(count),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("corp.Echo", methods),))
    key, chain = leaf.private_key_pem.bytes(), b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    await server.start()
    # Kept alive by whoever holds it; nobody else does.
    serve.server = server
    return port
