"""A model behind the APIs of three providers. It answers with one word, or with a call of the tool that it is offered
until it has that tool's result; streamed where the request wants that, and counted like the real ones. Where it is
offered a shell, it runs what it is told to run."""

import asyncio
import json
import re

WORDS = ["po", "ng"]
ARGUMENTS = {"amount": 5}
# The tools of real agents that take a command, and where.
SHELLS = {"Bash": "command", "exec_command": "cmd"}
ORDER = re.compile(r"run `([^`]+)`")
# Fails every other time.
FLAKY = "flaky"
failed = set()


async def events(request, told, named=False):
    await request.start(200, [("content-type", "text/event-stream")])
    for event in told:
        name = f"event: {event['type']}\n" if named else ""
        text = event if isinstance(event, str) else json.dumps(event)
        await request.part(f"{name}data: {text}\n\n".encode())
        # Each in a packet of its own.
        await asyncio.sleep(0.005)
    await request.part(b"", more=False)


def choose(names, told):
    """The tool to call, and with what; nothing where an agent has a shell and was given no order."""
    shell = next((name for name in names if name in SHELLS), None)
    if shell is None:
        return names[0], ARGUMENTS
    order = ORDER.search(json.dumps(told))
    return (shell, {SHELLS[shell]: order[1]}) if order else (None, None)


def fails(asked, credential):
    """Whether this call is to fail; the same one again does not."""
    if asked.get("model") != FLAKY or credential in failed:
        failed.discard(credential)
        return False
    failed.add(credential)
    return True


async def openai(book, request, credential):
    asked = json.loads(await request.body() or b"{}")
    if fails(asked, credential):
        error = {"message": "the model is overloaded", "type": "server_error", "param": None, "code": None}
        return await request.answer({"error": error}, status=503, headers=[("retry-after-ms", "1")])
    if request.path.endswith("/responses"):
        return await responses(request, asked)
    messages = asked.get("messages", [])
    wants_tool = bool(asked.get("tools")) and messages[-1].get("role") != "tool"
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
    usage["prompt_tokens_details"] = {"cached_tokens": 8}
    usage["completion_tokens_details"] = {"reasoning_tokens": 3}
    told = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": asked.get("model")}
    name = asked["tools"][0]["function"]["name"] if wants_tool else None
    function = {"name": name, "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "call_1", "type": "function", "function": function}
    stop = "tool_calls" if wants_tool else "stop"
    if not asked.get("stream"):
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        if not wants_tool:
            message = {"role": "assistant", "content": "".join(WORDS)}
        choice = {"index": 0, "finish_reason": stop, "message": message}
        return await request.answer({**told, "choices": [choice], "usage": usage})
    deltas = [{"content": word} for word in WORDS]
    if wants_tool:
        text = function["arguments"]
        first = {**call, "index": 0, "function": {"name": name, "arguments": ""}}
        rest = [{"index": 0, "function": {"arguments": part}} for part in (text[:5], text[5:])]
        deltas = [{"tool_calls": [part]} for part in [first, *rest]]
    chunk = {**told, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if wants_tool or asked.get("stream_options", {}).get("include_usage"):
        chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]})
    if asked.get("stream_options", {}).get("include_usage"):
        chunks.append({**chunk, "choices": [], "usage": usage})
    await events(request, [*chunks, "[DONE]"])


async def responses(request, asked):
    items = asked.get("input")
    answered = isinstance(items, list) and items[-1].get("type") == "function_call_output"
    text = "".join(WORDS)
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    names = [tool["name"] for tool in asked.get("tools", []) if "name" in tool]
    name, arguments = choose(names, items) if names and not answered else (None, None)
    if name:
        item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"}
        item |= {"name": name, "arguments": json.dumps(arguments)}
    usage = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}
    usage["input_tokens_details"] = {"cached_tokens": 8}
    usage["output_tokens_details"] = {"reasoning_tokens": 3}
    told = {"id": "resp_1", "object": "response", "created_at": 1, "model": asked["model"], "error": None}
    told |= {"incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True}
    told |= {"temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": [], "output": [item]}
    told |= {"status": "completed", "usage": usage}
    if not asked.get("stream"):
        return await request.answer(told)
    place = {"output_index": 0, "item_id": item["id"]}
    parts = []
    if item["type"] == "message":
        here = {**place, "content_index": 0}
        empty = {**part, "text": ""}
        parts = [{**here, "type": "response.content_part.added", "part": empty}]
        parts += [{**here, "type": "response.output_text.delta", "delta": word, "logprobs": []} for word in WORDS]
        parts.append({**here, "type": "response.output_text.done", "text": text, "logprobs": []})
        parts.append({**here, "type": "response.content_part.done", "part": part})
    open_item = {**item, "content": []} if item["type"] == "message" else {**item, "arguments": ""}
    begun = {**told, "status": "in_progress", "output": [], "usage": None}
    told_events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": open_item},
        *parts,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": told},
    ]
    numbered = [{**event, "sequence_number": n} for n, event in enumerate(told_events)]
    await events(request, numbered, named=True)


async def anthropic(book, request, credential):
    asked = json.loads(await request.body() or b"{}")
    if fails(asked, credential):
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return await request.answer(error, status=529, headers=[("retry-after-ms", "1")])
    last = asked["messages"][-1]["content"]
    answered = isinstance(last, list) and last[-1].get("type") == "tool_result"
    names = [tool["name"] for tool in asked.get("tools", [])]
    name, arguments = choose(names, asked["messages"]) if names and not answered else (None, None)
    wants_tool = name is not None
    text = "".join(WORDS)
    block = {"type": "text", "text": text}
    if wants_tool:
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    usage = {"input_tokens": 12, "output_tokens": 9, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 0}
    stop = {"stop_reason": "tool_use" if wants_tool else "end_turn", "stop_sequence": None}
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"]}
    if not asked.get("stream"):
        return await request.answer({**told, "content": [block], **stop, "usage": usage})
    begun = {**told, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    empty = {**block, "input": {}} if wants_tool else {**block, "text": ""}
    deltas = [{"type": "text_delta", "text": word} for word in WORDS]
    if wants_tool:
        text = json.dumps(arguments)
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in (text[:5], text[5:])]
    await events(
        request,
        [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ],
        named=True,
    )


async def google(book, request, credential):
    asked = json.loads(await request.body() or b"{}")
    model = request.path.rsplit("/", 1)[-1].split(":")[0]
    declared = [f for tool in asked.get("tools", []) for f in tool.get("functionDeclarations", [])]
    answered = "functionResponse" in asked["contents"][-1]["parts"][-1]
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 6, "thoughtsTokenCount": 3}
    usage |= {"cachedContentTokenCount": 8, "totalTokenCount": 29}
    told = {"modelVersion": model, "responseId": "r1"}
    parts = [{"text": word} for word in WORDS]
    if declared and not answered:
        parts = [{"functionCall": {"name": declared[0]["name"], "args": ARGUMENTS}}]
    if request.path.endswith(":generateContent"):
        whole = parts if "functionCall" in parts[0] else [{"text": "".join(WORDS)}]
        candidate = {"index": 0, "content": {"role": "model", "parts": whole}, "finishReason": "STOP"}
        return await request.answer({**told, "candidates": [candidate], "usageMetadata": usage})
    chunks = [{**told, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]} for part in parts]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    chunks[-1]["usageMetadata"] = usage
    if "alt=sse" in request.query:
        return await events(request, chunks)
    await request.start(200, [("content-type", "application/json")])
    for n, chunk in enumerate(chunks):
        await request.part(("[" if n == 0 else ",\n").encode() + json.dumps(chunk).encode())
        await asyncio.sleep(0.005)
    await request.part(b"]", more=False)
