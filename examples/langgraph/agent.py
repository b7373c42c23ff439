"""A LangGraph agent that lives outside and uses a sandbox as its tool: whatever its model wants to run, runs there.

It is an ordinary LangGraph program with E2B's SDK. It needs a service (`cofferdam serve`), its key and address in
E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL, and a model in OPENAI_BASE_URL; `model.py` beside this is one that needs
neither network nor key.

usage: agent.py TASK
"""

import sys

from e2b import CommandExitException, Sandbox
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

RULES = "You answer by computing. Write Python, run it, and say what came of it."


def tools(sandbox: Sandbox) -> list:
    @tool
    def write_file(path: str, text: str) -> str:
        """Writes a file in the sandbox."""
        return f"written: {sandbox.files.write(path, text).path}"

    @tool
    def run(command: str) -> str:
        """Runs a shell command in the sandbox, and gives what it printed."""
        try:
            return sandbox.commands.run(command).stdout
        except CommandExitException as failed:
            return f"exit {failed.exit_code}: {failed.stdout}{failed.stderr}"

    return [write_file, run]


def graph(sandbox: Sandbox):
    offered = tools(sandbox)
    model = ChatOpenAI(model="double-1", max_retries=0).bind_tools(offered)

    def think(state: MessagesState) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    made = StateGraph(MessagesState)
    made.add_node("think", think)
    made.add_node("tools", ToolNode(offered))
    made.add_edge(START, "think")
    made.add_conditional_edges("think", tools_condition)
    made.add_edge("tools", "think")
    return made.compile()


def main() -> None:
    task = " ".join(sys.argv[1:]) or sys.exit(__doc__)
    with Sandbox.create(timeout=120, allow_internet_access=False) as sandbox:
        said = graph(sandbox).invoke({"messages": [SystemMessage(RULES), HumanMessage(task)]})
        print(said["messages"][-1].content)


if __name__ == "__main__":
    main()
