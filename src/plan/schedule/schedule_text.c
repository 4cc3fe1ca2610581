// Schedules as text: read from a file that a user wrote, and written so that it can be read again.
//
// The file is untrusted: its length, ranks and actions have limits, numbers are bounded before they
// are used, and every error names the line, the rank and the text there. plan_schedule_validate and
// plan_timeline_simulate check the meaning of the lists.
#include "plan/schedule/schedule_internal.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MAX_BYTES = 64 << 20, FILE_MAX_ACTIONS = 1 << 22, SHOWN_BYTES = 24 };

struct schedule_file {
    int32_t stages, microbatches, chunks;
    schedule_list *lists; // [rank]
    int64_t *lines;       // [rank]
    schedule_shape shape;
};

typedef struct reader {
    const char *file, *at, *end;
    int64_t line;
    arena *a;
    schedule_file *f;
    int64_t lists_capacity, lines_capacity, actions;
    const char *word; // what is being read
    int64_t word_bytes;
} reader;

static const char *const shapes[] = {[SHAPE_LOOP] = "loop", [SHAPE_V] = "v", [SHAPE_TWO] = "two"};

// Copies the word for an error message: short and printable.
static const char *shown(const reader *r, char buffer[SHOWN_BYTES + 4])
{
    const int64_t n = min_i64(r->word_bytes, SHOWN_BYTES);
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = r->word[i] >= ' ' && r->word[i] <= '~' ? r->word[i] : '?';
    }
    memcpy(buffer + n, r->word_bytes > n ? "..." : "", r->word_bytes > n ? 4 : 1);
    return buffer;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// Reads the next word of the line; false at its end. A comment ends a line.
static bool next_word(reader *r)
{
    while (r->at < r->end && is_space(*r->at)) r->at++;
    if (r->at < r->end && *r->at == '#') {
        while (r->at < r->end && *r->at != '\n') r->at++;
    }
    if (r->at >= r->end || *r->at == '\n') return false;
    r->word = r->at;
    while (r->at < r->end && !is_space(*r->at) && *r->at != '\n' && *r->at != '#') r->at++;
    r->word_bytes = r->at - r->word;
    return true;
}

static status bad_word(const reader *r)
{
    char buffer[SHOWN_BYTES + 4];
    return fail(
        ST_CONFIG,
        "%s:%lld: rank %d, action %lld: '%s' is none; write F, B, I or W and chunk.micro-batch, as "
        "F0.3, or F0.3+B1.2",
        r->file, (long long)r->line, r->f->stages - 1,
        (long long)r->f->lists[r->f->stages - 1].count + 1, shown(r, buffer));
}

// Reads a number at *at, below `limit`; -1 if there is none.
static int32_t number(const char **at, const char *end, int32_t limit)
{
    int32_t value = 0;
    const char *p = *at;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        value = value * 10 + (*p - '0');
        if (value >= limit) return -1;
    }
    if (p == *at) return -1;
    *at = p;
    return value;
}

// Reads "c.m" at *at.
static bool pair(const char **at, const char *end, int32_t *chunk, int32_t *microbatch)
{
    *chunk = number(at, end, SCHEDULE_MAX_CHUNKS);
    if (*chunk < 0 || *at >= end || *(*at)++ != '.') return false;
    *microbatch = number(at, end, SCHEDULE_MAX_MICROBATCHES);
    return *microbatch >= 0;
}

static status read_action(reader *r)
{
    static const char letters[] = "FBIW";
    static const schedule_kind kinds[] = {SCHEDULE_FORWARD, SCHEDULE_BACKWARD,
                                          SCHEDULE_BACKWARD_INPUT, SCHEDULE_BACKWARD_WEIGHT};
    schedule_file *f = r->f;
    schedule_list *list = &f->lists[f->stages - 1];
    const char *p = r->word, *const end = r->word + r->word_bytes;
    const char *const letter = *p == '\0' ? NULL : strchr(letters, *p);
    int32_t chunk, i, chunk_b = -1, i_b = -1;
    if (letter == NULL) return bad_word(r);
    p++;
    if (!pair(&p, end, &chunk, &i)) return bad_word(r);
    const bool is_both = p < end;
    if (is_both) {
        if (*letter != 'F' || end - p < 2 || p[0] != '+' || p[1] != 'B') return bad_word(r);
        p += 2;
        if (!pair(&p, end, &chunk_b, &i_b) || p < end) return bad_word(r);
    }
    if (++r->actions > FILE_MAX_ACTIONS) {
        return fail(ST_CONFIG, "%s:%lld: rank %d: more than %d actions in the file", r->file,
                    (long long)r->line, f->stages - 1, FILE_MAX_ACTIONS);
    }
    f->chunks = (int32_t)max_i64(f->chunks, max_i64(chunk, chunk_b) + 1);
    f->microbatches = (int32_t)max_i64(f->microbatches, max_i64(i, i_b) + 1);
    if (is_both) return schedule_push_both(r->a, list, chunk, i, chunk_b, i_b);
    return schedule_push(r->a, list, kinds[letter - letters], chunk, i);
}

static status read_shape(reader *r)
{
    char buffer[SHOWN_BYTES + 4];
    if (r->f->stages > 0) {
        return fail(ST_CONFIG, "%s:%lld: 'shape:' stands before the first rank's line", r->file,
                    (long long)r->line);
    }
    if (!next_word(r)) r->word_bytes = 0;
    for (int i = 0; i < (int)COUNT_OF(shapes); i++) {
        if (r->word_bytes == (int64_t)strlen(shapes[i]) &&
            memcmp(r->word, shapes[i], strlen(shapes[i])) == 0) {
            r->f->shape = (schedule_shape)i;
            return ST_OK;
        }
    }
    return fail(ST_CONFIG, "%s:%lld: shape '%s': expected loop, v or two", r->file,
                (long long)r->line, shown(r, buffer));
}

static status read_line(reader *r)
{
    static const char shape[] = "shape:";
    schedule_file *f = r->f;
    char buffer[SHOWN_BYTES + 4];
    if (!next_word(r)) return ST_OK;
    if (r->word_bytes == sizeof(shape) - 1 && memcmp(r->word, shape, sizeof(shape) - 1) == 0) {
        TRY(read_shape(r));
        if (!next_word(r)) return ST_OK;
        return fail(ST_CONFIG,
                    "%s:%lld: '%s' after the shape: a rank's actions stand on a line of "
                    "their own",
                    r->file, (long long)r->line, shown(r, buffer));
    }
    if (f->stages >= SCHEDULE_MAX_STAGES) {
        return fail(ST_CONFIG, "%s:%lld: more than %d lines of ranks", r->file, (long long)r->line,
                    SCHEDULE_MAX_STAGES);
    }
    TRY(arena_grow(r->a, (void **)&f->lists, &r->lists_capacity, f->stages + 1,
                   sizeof(schedule_list)));
    TRY(arena_grow(r->a, (void **)&f->lines, &r->lines_capacity, f->stages + 1, sizeof(int64_t)));
    f->lines[f->stages++] = r->line;
    do {
        TRY(read_action(r));
    } while (next_word(r));
    return ST_OK;
}

// --- the schedule --------------------------------------------------------------------------------
static status check(const plan_schedule *self, const schedule_request *r)
{
    const schedule_file *f = self->file;
    if (r->stages != f->stages) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.pp: %s lists %d ranks, the layout has %d stages; take layout.pp=%d or "
                    "another file",
                    self->name, f->stages, r->stages, f->stages);
    }
    if (r->microbatches != f->microbatches) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.schedule: %s lists %d micro-batches, a step of one rank has %d; change "
                    "train.micro_batch or train.global_batch, or take another file",
                    self->name, f->microbatches, r->microbatches);
    }
    if (f->shape == SHAPE_TWO && f->microbatches % 2 != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.schedule: %s goes in two directions, half of the micro-batches in each, and "
            "%d is odd",
            self->name, f->microbatches);
    }
    return ST_OK;
}

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    (void)r;
    const schedule_list *from = &self->file->lists[rank];
    TRY(arena_grow(a, (void **)&out->actions, &out->capacity, from->count,
                   sizeof(schedule_action)));
    if (from->count > 0) {
        memcpy(out->actions, from->actions, (size_t)from->count * sizeof(schedule_action));
    }
    out->count = from->count;
    return ST_OK;
}

int64_t plan_schedule_line(const plan_schedule *s, int32_t rank)
{
    return s->file != NULL ? s->file->lines[rank] : 0;
}

static status make(reader *r, const plan_schedule **out)
{
    schedule_file *f = r->f;
    if (f->stages == 0) return fail(ST_CONFIG, "%s: no rank has a line in it", r->file);
    if (f->shape != SHAPE_LOOP && f->chunks != 2) {
        return fail(ST_CONFIG, "%s: shape %s has chunks 0 and 1 on every rank, the lists have %d",
                    r->file, shapes[f->shape], f->chunks);
    }
    plan_schedule *s;
    char *name;
    TRY(arena_new(r->a, 1, &s));
    TRY(arena_strdup(r->a, r->file, &name));
    *s = (plan_schedule){
        .name = name,
        .about = "read from a file",
        .shape = f->shape,
        .chunks_min = f->chunks,
        .chunks_max = f->chunks,
        .check = check,
        .emit = emit,
        .file = f,
    };
    for (int32_t i = 0; i < f->stages; i++) {
        for (int64_t j = 0; j < f->lists[i].count; j++) {
            const schedule_kind kind = f->lists[i].actions[j].kind;
            s->splits_backward |= kind == SCHEDULE_BACKWARD_INPUT;
        }
    }
    *out = s;
    return ST_OK;
}

status plan_schedule_parse(arena *a, const char *file, const char *bytes, int64_t length,
                           const plan_schedule **out)
{
    if (length > FILE_MAX_BYTES) {
        return fail(ST_CONFIG, "%s: %lld bytes, a schedule has at most %d", file, (long long)length,
                    FILE_MAX_BYTES);
    }
    reader r = {.file = file, .at = bytes, .end = bytes + length, .line = 1, .a = a};
    TRY(arena_new(a, 1, &r.f));
    while (r.at < r.end) {
        TRY(read_line(&r));
        ASSERT(r.at == r.end || *r.at == '\n');
        if (r.at < r.end) r.at++;
        r.line++;
    }
    return make(&r, out);
}

status plan_schedule_print(const plan_schedule *s, const schedule_request *r, text *out)
{
    TRY(text_add(out, "# %s, %d ranks, %d micro-batches: %s\nshape: %s\n", s->name, r->stages,
                 r->microbatches, s->about, shapes[s->shape]));
    for (int32_t rank = 0; rank < r->stages; rank++) {
        schedule_list list;
        char name[48];
        TRY(plan_schedule_emit(s, r, rank, out->a, &list));
        for (int64_t i = 0; i < list.count; i++) {
            TRY(text_add(out, "%s%s", i > 0 ? " " : "",
                         plan_schedule_action_print(&list.actions[i], name)));
        }
        TRY(text_add(out, "\n"));
    }
    return ST_OK;
}
