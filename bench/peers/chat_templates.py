#!/usr/bin/env python3
"""Renders published chat templates with Jinja as the Hugging Face libraries set it up, for tests/data_jinja_test.

  pip install jinja2==3.1.6
  bench/peers/chat_templates.py PATH... > FOLDER/golden/chat/templates.jsonl
  TRIREME_SHARED=FOLDER build/tests/data_jinja_test

A PATH is a tokenizer_config.json, a .jinja file, or a folder with such files. Each template gets conversations with
systems, tools, reasoning, parts and missing roles, under several settings. A line has a template, its variables and the
text, or the error that the template raises; renderings that fail for another reason are left out and counted.
"""
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

UNIX_S = 1700000000  # of the test


class Raised(Exception):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def raised(text):
    raise Raised(text)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raised
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(UNIX_S, datetime.timezone.utc).strftime(f)
    return env


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": 'Weather "now" for <place> & é', "return": {"type": "string", "description": "text"},
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city"}, "unit": {"type": "string", "enum": ["c", "f"]},
        "days": {"type": "array", "items": {"type": "integer"}}, "n": {"type": ["integer", "null"], "default": 3}}}}},
    {"type": "function", "function": {"name": "stop", "description": "Stops", "parameters": {"type": "object", "properties": {}}}}]
ARGUMENTS = {"city": "Köln", "unit": "c", "days": [1, 2], "deep": {"a": None, "b": 1.5, "c": True}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def call(i, arguments):
    return {"id": f"abcdefgh{i}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def part(text):
    return {"type": "text", "text": text}


CONVERSATIONS = [
    [turn("user", "Hi")],
    [turn("system", " Be kind. "), turn("user", "Hi\nthere "), turn("assistant", "Hello"), turn("user", "More é 世")],
    [turn("user", "1"), turn("assistant", "<think>\nhm\n</think>\n\n2"), turn("user", "3"), turn("assistant", "4")],
    [turn("user", "1"), turn("assistant", "2", reasoning_content="why"), turn("user", "3"),
     turn("assistant", "4", reasoning_content="so")],
    [turn("user", [part("part one"), part("two")]), turn("assistant", [part("ok")])],
    [turn("user", [{"type": "image"}, part("two")])],
    [turn("user", "w?"), turn("assistant", "", tool_calls=[call(1, ARGUMENTS)]),
     turn("tool", "sunny", tool_call_id="abcdefgh1", name="get_weather"), turn("assistant", "It is sunny.")],
    [turn("system", "S"), turn("user", "w?"), turn("assistant", None, tool_calls=[call(1, ARGUMENTS), call(2, {"city": "B"})]),
     turn("tool", '{"t": 1}', tool_call_id="abcdefgh1", name="get_weather"),
     turn("tool", "rain", tool_call_id="abcdefgh2", name="get_weather"), turn("user", "thanks")],
    [turn("user", "w?"), turn("assistant", "let me", tool_calls=[call(1, json.dumps(ARGUMENTS))]),
     turn("tool", [part("sun")], tool_call_id="abcdefgh1", name="get_weather"), turn("assistant", "done"), turn("user", "x")],
    [turn("assistant", "first"), turn("user", "x")],
    [turn("developer", "D"), turn("user", "x")],
    [turn("user", "a"), turn("user", "b")],
]
SETTINGS = [
    {}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "tools": TOOLS}, {"tools": TOOLS[:1]},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "documents": [{"title": "t", "text": "doc text", "content": "c"}]},
    {"add_generation_prompt": True, "builtin_tools": ["code_interpreter", "brave_search"], "tools": TOOLS[:1],
     "tools_in_user_message": False, "date_string": "26 Jul 2024"},
    {"add_generation_prompt": True, "reasoning_effort": "high", "preserve_thinking": True, "xml_tools": TOOLS[:1],
     "python_tools": ["x"]},
]


def templates(path):
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            yield from templates(os.path.join(path, name))
    elif path.endswith((".jinja", ".jinja2")):
        yield path, open(path).read(), {}
    elif path.endswith("tokenizer_config.json"):
        config = json.load(open(path))
        tokens = {k: config[k]["content"] if isinstance(config[k], dict) else config[k]
                  for k in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(k)}
        given = config.get("chat_template") or []
        for t in [{"template": given}] if isinstance(given, str) else given:
            yield path, t["template"], tokens


def main():
    env, lines, left_out, count = environment(), 0, 0, 0
    for path in sys.argv[1:]:
        for _, source, tokens in templates(path):
            count += 1
            template = env.from_string(source)
            for messages in CONVERSATIONS:
                for setting in SETTINGS:
                    values = {"add_generation_prompt": False, "tools": None, **tokens, **setting, "messages": messages}
                    row = {"template": source, **values}
                    try:
                        row["rendered"] = template.render(**json.loads(json.dumps(values)))
                    except Raised as e:
                        row["error"] = str(e)
                    except Exception:  # noqa: BLE001  -- a type that the template does not expect
                        left_out += 1
                        continue
                    lines += 1
                    print(json.dumps(row))
    print(f"{count} templates, {lines} renderings, {left_out} left out", file=sys.stderr)


main()
