// Reads the losses of ranks back from metrics.jsonl.
#include "base/format/json.h"
#include "observe/observe.h"

#include <stdio.h>
#include <string.h>

enum { LIMIT_BYTES = 1 << 30 };

// Counts a step's record, from whose tokens and speed its time follows.
static void step_add(obs_losses *l, const json *record)
{
    const int64_t tokens = json_int(json_get(record, "tokens"), 0);
    const double speed = json_real(json_get(record, "tokens_per_s"), 0.0);
    if (speed > 0.0 && tokens > l->tokens) l->steps_s += (double)(tokens - l->tokens) / speed;
    l->tokens = max_i64(l->tokens, tokens);
    l->has_goodput = obs_goodput_read(record, &l->goodput) || l->has_goodput;
    l->steps++;
}

static status loss_add(arena *a, obs_losses *l, const json *record)
{
    char *cause = NULL, *event = NULL;
    TRY(arena_strdup(a, json_text(json_get(record, "event"), ""), &event));
    TRY(arena_strdup(a, json_text(json_get(record, "cause"), "unknown"), &cause));
    const bool is_verdict = json_get(record, "verdict") != NULL;
    // A repaired product costs no step, and the step that a replay found wrong has an event of its
    // own when it is done again.
    const bool costs_none = strcmp(cause, "abft") == 0 || is_verdict;
    const bool is_loss = strcmp(event, "lost") == 0 || (strcmp(event, "sdc") == 0 && !costs_none);
    l->losses += is_loss;
    if (is_verdict) {
        const char *tensor = json_text(json_get(record, "tensor"), "");
        TRY(arena_format(a, &cause, "replay: %s%s%s", json_text(json_get(record, "verdict"), ""),
                         tensor[0] != '\0' ? ", " : "", tensor));
    }
    TRY(arena_grow(a, (void **)&l->items, &l->capacity, l->count + 1, (int64_t)sizeof(*l->items)));
    l->items[l->count++] = (obs_loss){.step = json_int(json_get(record, "step"), -1),
                                      .rank = json_int(json_get(record, "rank"), -1),
                                      .epoch = json_int(json_get(record, "epoch"), -1),
                                      .detect_ms = json_real(json_get(record, "detect_ms"), 0.0),
                                      .resume_ms = json_real(json_get(record, "resume_ms"), 0.0),
                                      .event = event,
                                      .is_loss = is_loss,
                                      .cause = cause};
    return ST_OK;
}

// The state after the records of before.
typedef struct before {
    double since, time; // time: of the newest record
    obs_goodput goodput;
} before;

static status line_add(arena *a, obs_losses *l, before *b, const char *line, int64_t bytes,
                       const char *what)
{
    json *record = NULL;
    TRY(json_parse(line, bytes, what, &record));
    const char *event = json_text(json_get(record, "event"), "");
    status st = ST_OK;
    b->time = json_real(json_get(record, "time"), b->time);
    if (b->time < b->since) {
        l->tokens = max_i64(l->tokens, json_int(json_get(record, "tokens"), 0));
        (void)obs_goodput_read(record, &b->goodput);
    } else if (event[0] == '\0') {
        step_add(l, record);
    } else if (json_get(record, "rank") != NULL) {
        st = loss_add(a, l, record);
    }
    json_free(record);
    return st;
}

static void goodput_subtract(obs_goodput *g, const obs_goodput *b)
{
    g->steps_s -= b->steps_s;
    for (int i = 0; i < OBS_CAUSE_COUNT; i++) g->lost_s[i] -= b->lost_s[i];
}

status obs_losses_read(const host *h, arena *a, const char *path, double since, obs_losses *out)
{
    before b = {.since = since};
    char *bytes = NULL, what[512];
    int64_t count = 0, at = 0, lines = 0;
    memset(out, 0, sizeof(*out));
    TRY(host_read_all(h, a, path, LIMIT_BYTES, &bytes, &count));
    while (at < count) {
        const char *end = memchr(bytes + at, '\n', (size_t)(count - at));
        if (end == NULL) break; // a run that goes on has not finished this line
        (void)snprintf(what, sizeof(what), "%.400s: line %lld", path, (long long)++lines);
        TRY(line_add(a, out, &b, bytes + at, end - (bytes + at), what));
        at = end - bytes + 1;
    }
    if (out->has_goodput) goodput_subtract(&out->goodput, &b.goodput);
    return ST_OK;
}
