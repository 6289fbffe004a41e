#!/usr/bin/env python3
"""agents_test.py MINERVA FOLDER openai-agents|claude-agent-sdk: an agent of that package reads a file with a fault, edits it and tests it, through `minerva serve` with a model
that says each turn (scripted.py). openai-agents speaks OpenAI Responses, whole and as a stream; claude-agent-sdk, whose wheel carries the program, Anthropic Messages. The
packages are installed below FOLDER once, from PyPI, pinned by hash (agents.txt); without a network the test is skipped with a line."""
import asyncio
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import pypi  # noqa: E402
import scripted  # noqa: E402
import served  # noqa: E402

FAULT, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
END = "The sum is right."
LIMIT = 300  # a hang, not a time that is measured


class Work:
    """A folder with the file, and a model that mends it by calls(path, command)."""

    def __init__(self, folder, calls):
        self.folder, self.model, self.home = (os.path.join(folder, name) for name in ("work", "model", "home"))
        for one in self.folder, self.model, self.home:
            os.mkdir(one)
        self.path = os.path.join(self.folder, "adder.py")
        self.write(FAULT)
        check = "import sys; sys.path.insert(0, %r); import adder; print(adder.add(2, 3))" % self.folder
        scripted.save(self.model, [*calls(self.path, "%s -B -c %s" % (shlex.quote(sys.executable), shlex.quote(check))), END])

    def write(self, text):
        with open(self.path, "w") as f:
            f.write(text)

    def read(self):
        with open(self.path) as f:
            return f.read()


def openai_agents(minerva, folder):
    import agents
    import openai

    @agents.function_tool
    def read_file(path: str) -> str:
        """Reads a file."""
        with open(path) as f:
            return f.read()

    @agents.function_tool
    def edit_file(path: str, old: str, new: str) -> str:
        """Replaces a text in a file."""
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace(old, new))
        return "done"

    @agents.function_tool
    def run(command: str) -> str:
        """Runs a command."""
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout

    async def both(url):
        agents.set_tracing_disabled(True)
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        agent = agents.Agent(name="mender", instructions="Mend the file.", tools=[read_file, edit_file, run], model=agents.OpenAIResponsesModel(model="m", openai_client=client))
        for previous in None, True:  # with the id of the response before, only what is new is sent
            work.write(FAULT)
            check(await agents.Runner.run(agent, "Mend adder.py.", auto_previous_response_id=bool(previous)))
        work.write(FAULT)
        result = agents.Runner.run_streamed(agent, "Mend adder.py.")
        pieces = [e.data.delta async for e in result.stream_events() if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"]
        assert "".join(pieces).endswith(END), pieces
        check(result)

    def check(result):
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        assert result.final_output == END and outputs == [FAULT, "done", "5\n"] and work.read() == RIGHT, (result.final_output, outputs, work.read())

    work = Work(folder, lambda path, command: [scripted.call("read_file", path=path), "<think>A minus.</think>I mend it." + scripted.call("edit_file", path=path, old="a - b", new="a + b"),
                                               scripted.call("run", command=command)])
    with served.Server(minerva, "--device", "cpu", "--alias", "m", model=work.model) as s:
        asyncio.run(asyncio.wait_for(both(s.url), LIMIT))


def claude_agent_sdk(minerva, folder):
    import claude_agent_sdk as sdk
    work = Work(folder, lambda path, command: [scripted.call("Read", file_path=path), scripted.call("Edit", file_path=path, old_string="a - b", new_string="a + b"),
                                               scripted.call("Bash", command=command, description="Tests it")])

    async def run(url):
        # nothing but the server: no updates, no telemetry, no settings of this user
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": work.home, "CLAUDE_CONFIG_DIR": work.home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
               "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        options = sdk.ClaudeAgentOptions(cwd=work.folder, env=env, allowed_tools=["Read", "Edit", "Bash"], permission_mode="acceptEdits", max_turns=8, model="claude-test", setting_sources=[])
        return [m async for m in sdk.query(prompt="Mend adder.py.", options=options)]

    with served.Server(minerva, "--device", "cpu", "--alias", "*", model=work.model) as s:
        said = asyncio.run(asyncio.wait_for(run(s.url), LIMIT))
    blocks = [b for m in said if isinstance(m, (sdk.AssistantMessage, sdk.UserMessage)) and not isinstance(m.content, str) for b in m.content]
    calls = [b.name for b in blocks if isinstance(b, sdk.ToolUseBlock)]
    results = [str(b.content) for b in blocks if isinstance(b, sdk.ToolResultBlock)]
    assert calls == ["Read", "Edit", "Bash"] and "return a - b" in results[0] and results[2] == "5" and work.read() == RIGHT, said
    assert isinstance(said[-1], sdk.ResultMessage) and not said[-1].is_error and said[-1].result == END, said[-1]


def main():
    minerva, folder, package = sys.argv[1:4]
    if not served.available(minerva):
        print("this minerva was built without its server")
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    target = pypi.install(folder, os.path.join(HERE, "agents.txt"), package, 900)
    if not target:
        sys.exit(77)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "CLAUDE")):
            del os.environ[name]
    sys.path.insert(0, target)
    with tempfile.TemporaryDirectory() as work:
        {"openai-agents": openai_agents, "claude-agent-sdk": claude_agent_sdk}[package](minerva, work)


if __name__ == "__main__":
    main()
