// Which fault comes when.
#include "base/rng.h"
#include "cli/chaos/chaos.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULE_LIMIT_BYTES = 1 << 20, KINDS_MAX = 16, NAME_BYTES = 16 };

static status fault_add(arena *a, chaos_schedule *s, const chaos_fault *f)
{
    if (s->count == CHAOS_FAULTS_MAX) {
        return fail(ST_USAGE, "more than %d faults; take a longer --every or fewer --seconds",
                    CHAOS_FAULTS_MAX);
    }
    TRY(arena_grow(a, (void **)&s->items, &s->capacity, s->count + 1, (int64_t)sizeof(*s->items)));
    s->items[s->count++] = *f;
    return ST_OK;
}

static status kind_of(arena *a, const char *name, const char *where, const chaos_kind **out)
{
    const char *names = NULL;
    *out = chaos_kind_find(name);
    if (*out != NULL) return ST_OK;
    TRY(chaos_kind_names(a, &names));
    return fail(ST_USAGE, "%s: there is no fault \"%s\"; there are %s", where, name, names);
}

// Reads "kill,stop".
static status kinds_read(arena *a, const char *words, const chaos_kind *out[KINDS_MAX],
                         int64_t *count)
{
    *count = 0;
    for (const char *at = words;; at++) {
        const size_t length = strcspn(at, ",");
        char name[NAME_BYTES];
        (void)snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (*count == KINDS_MAX) return fail(ST_USAGE, "--faults names more than %d", KINDS_MAX);
        TRY(kind_of(a, name, "--faults", &out[(*count)++]));
        at += length;
        if (*at == '\0') return ST_OK;
    }
}

status chaos_schedule_make(arena *a, const char *kinds, double every_s, double seconds,
                           uint64_t seed, chaos_schedule *out)
{
    const chaos_kind *all[KINDS_MAX];
    int64_t count = 0;
    *out = (chaos_schedule){0};
    TRY(kinds_read(a, kinds, all, &count));
    for (int64_t i = 0; (double)(i + 1) * every_s <= seconds; i++) {
        const double shift = (double)rng_uniform(rng_word(seed, 0, (uint64_t)i)) - 0.5;
        const uint32_t which = rng_word(seed, 1, (uint64_t)i) % (uint32_t)count;
        const chaos_fault f = {
            .at_s = ((double)(i + 1) + shift) * every_s, .kind = all[which], .rank = -1};
        TRY(fault_add(a, out, &f));
    }
    if (out->count > 0) return ST_OK;
    return fail(ST_USAGE,
                "no fault comes in --seconds = %g s with --every = %g s; give more seconds",
                seconds, every_s);
}

static status line_read(arena *a, const char *where, const char *line, chaos_schedule *out)
{
    char name[NAME_BYTES], end = '\0';
    double at_s = 0.0;
    long long rank = -1;
    const int n = sscanf(line, "%lf %15s %lld %c", &at_s, name, &rank, &end);
    const double before = out->count > 0 ? out->items[out->count - 1].at_s : 0.0;
    if ((n != 2 && n != 3) || !(at_s >= before) || at_s > 1e9 || rank < -1) {
        return fail(ST_USAGE,
                    "%s: \"%.200s\"; expected SECONDS FAULT [RANK], in the order of the seconds",
                    where, line);
    }
    chaos_fault f = {.at_s = at_s, .rank = rank};
    TRY(kind_of(a, name, where, &f.kind));
    return fault_add(a, out, &f);
}

status chaos_schedule_read(const host *h, arena *a, const char *path, chaos_schedule *out)
{
    char *bytes = NULL, where[512];
    int64_t count = 0, lines = 0;
    *out = (chaos_schedule){0};
    TRY(host_read_text(h, a, path, SCHEDULE_LIMIT_BYTES, &bytes, &count));
    for (char *line = bytes; line != NULL && *line != '\0';) {
        char *next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        line[strcspn(line, "#\r")] = '\0';
        (void)snprintf(where, sizeof(where), "%.400s, line %lld", path, (long long)++lines);
        if (line[strspn(line, " \t")] != '\0') TRY(line_read(a, where, line, out));
        line = next;
    }
    if (out->count > 0) return ST_OK;
    return fail(ST_USAGE, "%s holds no fault; expected lines SECONDS FAULT [RANK]", path);
}
