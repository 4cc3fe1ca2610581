#!/usr/bin/env python3
"""Talks to `trireme serve` with the Python package `openai`, as programs do that were written for OpenAI's API.

    pip install openai
    bench/peers/openai_client.py MODEL [--trireme build/trireme] [--adapters NAME=DIR] [-- FLAG ...]

MODEL is a run or a folder that `serve` takes; flags behind -- go to `serve`. Each check prints `NAME: passed` or
`NAME: failed`; the exit code is 1 if one failed.
"""
import argparse
import asyncio
import os
import signal
import sys

import openai

from shared import begin_serve

failed = 0


def check(name, condition):
    global failed
    failed += not condition
    print(f"{name}: {'passed' if condition else 'failed'}", flush=True)


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    except openai.OpenAIError as error:
        print(f"  {type(error).__name__}: {error}")
    return None


def texts(client, model):
    ask = lambda **more: client.completions.create(model=model, prompt="Once upon", seed=1, max_tokens=8, **more)
    one = ask()
    check("a completion", one.object == "text_completion" and one.choices[0].finish_reason in ("length", "stop"))
    check("its usage", one.usage.total_tokens == one.usage.prompt_tokens + one.usage.completion_tokens)
    check("the same seed", ask().choices[0].text == one.choices[0].text)
    check("n = 3", [c.index for c in ask(n=3).choices] == [0, 1, 2])
    likely = ask(logprobs=2).choices[0].logprobs
    check("logprobs", len(likely.tokens) == len(likely.token_logprobs) == len(likely.top_logprobs) and
          all(p <= 0 for p in likely.token_logprobs) and len(likely.top_logprobs[0]) == 2)
    whole = one.choices[0].text
    stop = whole[2:4]
    cut = ask(stop=[stop]).choices[0]
    check("stop", stop not in cut.text and whole.startswith(cut.text) and cut.finish_reason == "stop")
    parts = list(ask(stream=True, stream_options={"include_usage": True}))
    check("a stream", "".join(p.choices[0].text for p in parts if p.choices) == whole)
    check("usage of a stream", parts[-1].usage.completion_tokens == one.usage.completion_tokens)
    several = client.completions.create(model=model, prompt=["Once upon", "There was"], seed=1, max_tokens=8)
    check("several prompts", len(several.choices) == 2 and several.choices[0].text == whole)
    check("tokens as a prompt", client.completions.create(model=model, prompt=[1, 2, 3], max_tokens=2).usage.prompt_tokens == 3)
    check("another member", ask(extra_body={"top_k": 5, "min_p": 0.01}).choices[0].text != "")


def chats(client, model):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}]
    ask = lambda **more: client.chat.completions.create(model=model, messages=messages, seed=1, max_tokens=8, **more)
    said = ask()
    check("a chat", said.choices[0].message.role == "assistant" and said.object == "chat.completion")
    parts = list(ask(stream=True))
    content = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    check("a chat as a stream", content == said.choices[0].message.content and parts[0].choices[0].delta.role == "assistant")
    check("the end of a stream", parts[-1].choices[0].finish_reason == said.choices[0].finish_reason)
    try:
        with client.chat.completions.stream(model=model, messages=messages, seed=1, max_tokens=8) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
    except openai.LengthFinishReasonError as error:  # the helper's word for finish_reason "length"
        final = error.completion
    check("the helper for streams", final.choices[0].message.content == said.choices[0].message.content)
    likely = ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
    check("logprobs of a chat", all(t.logprob <= 0 and len(t.top_logprobs) == 3 for t in likely))
    parts = [p.choices[0] for p in ask(stream=True, logprobs=True, top_logprobs=3) if p.choices]
    told = [t for p in parts if p.logprobs for t in p.logprobs.content]
    check("logprobs of a stream", [t.logprob for t in told] == [t.logprob for t in likely])
    check("n = 2 of a chat", len(ask(n=2).choices) == 2)
    check("max_completion_tokens", client.chat.completions.create(
        model=model, messages=messages, max_completion_tokens=3).usage.completion_tokens <= 3)
    raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=2)
    check("the raw answer", raw.parse().choices[0].message.content is not None)


def errors(client, model, base):
    wrong = openai.OpenAI(base_url=base, api_key="wrong", max_retries=0)
    check("a wrong key", raised(openai.AuthenticationError, wrong.models.list) is not None)
    missing = raised(openai.NotFoundError, lambda: client.completions.create(model="none", prompt="x"))
    check("no such model", missing is not None and missing.code == "model_not_found")
    bad = raised(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="x", temperature=-1))
    check("a wrong value", bad is not None and bad.param == "temperature")
    bad = raised(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="x", max_tokens=1 << 20))
    check("too many tokens", bad is not None and "tokens" in bad.message)
    bad = raised(openai.BadRequestError, lambda: client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "x"}],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]))
    check("tools are refused by name", bad is not None and bad.param == "tools")


async def many(base, key, model):
    async with openai.AsyncOpenAI(base_url=base, api_key=key) as client:
        ask = lambda i: client.completions.create(model=model, prompt=f"Number {i % 4}", seed=1, max_tokens=8)
        return [a.choices[0].text for a in await asyncio.gather(*map(ask, range(24)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--adapters", default=[], nargs="*")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    adapters = [word for a in options.adapters for word in ("--adapters", a)]
    server, base = begin_serve(os.path.realpath(options.trireme), options.model, "--key", "secret", "--name", "tiny",
                               "--strict", "--threads", "1", *adapters, *words[at + 1:])
    try:
        client = openai.OpenAI(base_url=base, api_key="secret", max_retries=0)
        names = [m.id for m in client.models.list()]
        check("the models", names == ["tiny"] + [a.split("=")[0] for a in options.adapters])
        check("one model", client.models.retrieve("tiny").id == "tiny")
        check("no such model to retrieve", raised(openai.NotFoundError, lambda: client.models.retrieve("none")) is not None)
        texts(client, "tiny")
        chats(client, "tiny")
        for name in names[1:]:
            check(f"the adapter {name}", client.completions.create(model=name, prompt="Once", max_tokens=4).model == name)
        errors(client, "tiny", base)
        told = asyncio.run(many(base, "secret", "tiny"))
        check("many at once, each as if alone", all(told[i] == told[i % 4] for i in range(24)))
    finally:
        server.send_signal(signal.SIGTERM)
        check("SIGTERM ends the server", server.wait() == 0)
    sys.exit(failed > 0)


main()
