// A command succeeds with the completion: confined, with limits of time and memory (sandbox/), in a
// folder with the files `prompt`, `completion` and `answer`.
#include "sandbox/sandbox.h"
#include "train/reward/reward.h"

#include <string.h>

enum { AT_ONCE = 64, FILES = 3 };

static sandbox_file file_of(const char *name, const char *bytes)
{
    const char *all = bytes != NULL ? bytes : "";
    return (sandbox_file){.name = name, .bytes = all, .count = (int64_t)strlen(all)};
}

static status some(const reward_context *x, arena *a, const reward_case *cases, int64_t count,
                   double *out)
{
    sandbox_file files[AT_ONCE][FILES];
    sandbox_job jobs[AT_ONCE];
    sandbox_result results[AT_ONCE];
    const run_reward *r = x->keys;
    const sandbox_spec spec = {
        .limits = {.time_ns = r->time_limit_ns, .memory_bytes = r->memory_limit, .output_bytes = 1},
        .at_once = x->threads};
    for (int64_t i = 0; i < count; i++) {
        files[i][0] = file_of("prompt", cases[i].prompt);
        files[i][1] = file_of("completion", cases[i].completion);
        files[i][2] = file_of("answer", cases[i].answer);
        jobs[i] = (sandbox_job){.command = r->command, .files = files[i], .file_count = FILES};
    }
    TRY(sandbox_run(x->h, a, &spec, jobs, count, results));
    for (int64_t i = 0; i < count; i++) {
        out[i] = results[i].end == SANDBOX_EXITED && results[i].code == 0 ? 1.0 : 0.0;
    }
    return ST_OK;
}

static status all(const reward_context *x, const reward_case *cases, int64_t count, double *out)
{
    arena *a = NULL;
    TRY(arena_create("rewards", 0, &a));
    status st = ST_OK;
    for (int64_t at = 0; at < count && st == ST_OK; at += AT_ONCE) {
        arena_reset(a);
        st = some(x, a, cases + at, min_i64(AT_ONCE, count - at), out + at);
    }
    arena_destroy(a);
    return st;
}

// Refuses a machine that cannot confine the command.
static status check(const reward_context *x, text *warning)
{
    const sandbox_spec spec = {.at_once = 1};
    const sandbox_job job = {.command = "true"};
    sandbox_result result;
    arena *a = NULL;
    TRY(arena_create("rewards", 0, &a));
    text missing = {.a = a};
    status st = sandbox_run(x->h, a, &spec, &job, 1, &result);
    if (st == ST_OK) st = sandbox_missing(result.confined, &missing);
    if (st == ST_OK && missing.length > 0) {
        st = text_add(warning, "reward.command: on this machine the command %s", missing.bytes);
    }
    arena_destroy(a);
    return st;
}

const reward_rule reward_command = {
    .name = "command", .needs_prompt = true, .check = check, .all = all};
