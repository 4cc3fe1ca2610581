// Recordings of steps: the hash of each rank's pieces of the state after a step, with the rows and
// columns of the logical tensor that the piece is, and its stripes if it has some (plan_piece).
// Where experts move between ranks (moe.rebalance), rows are those of slots, and a list says which
// expert was in each. A replay that computes the step again, in any layout, compares its own state
// with them and so says which rank, if any, had other bits.
//
//   {"step": 100, "ranks": 4}
//   {"rank": 0, "name": "m/layers.0.attn.q", "row": 0, "rows": 8, "column": 0, "columns": 32,
//    "hash": "0123456789abcdef"}
#include "base/hash.h"
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Takes the rows of a piece from where the experts of its slots are in the logical tensor.
static void slots_take(const ckpt_tensor *t, const json *expert_of, const char *bytes,
                       const plan_piece *p, char *piece)
{
    const int64_t width = dtype_bytes(t->type), columns = t->ndim > 1 ? t->dims[1] : 1;
    const int64_t each = t->dims[0] / json_count(expert_of), own = p->columns * width;
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t row = plan_piece_row(p, i), slot = row / each;
        const int64_t expert = json_int(json_at(expert_of, slot), 0);
        const int64_t from = (row + (expert - slot) * each) * columns + p->column;
        memcpy(piece + i * own, bytes + from * width, (size_t)own);
    }
}

// Hashes a piece of a tensor as the rank does that holds it (replicas.c).
static uint64_t piece_hash(const ckpt_tensor *t, const json *expert_of, const char *bytes,
                           const plan_piece *p, char *piece)
{
    const int64_t width = dtype_bytes(t->type), rows = t->ndim > 0 ? t->dims[0] : 1;
    const int64_t columns = t->ndim > 1 ? t->dims[1] : 1, count = p->rows * p->columns * width;
    uint64_t hash = 0;
    if (expert_of != NULL) {
        slots_take(t, expert_of, bytes, p, piece);
    } else {
        (void)plan_piece_take(p, columns, 0, rows * columns, width, bytes, piece);
    }
    for (int64_t at = 0; at < count; at += STATE_CHUNK_BYTES) {
        hash = hash64(piece + at, min_i64(STATE_CHUNK_BYTES, count - at), hash);
    }
    return hash;
}

static bool fits(const ckpt_tensor *t, const plan_piece *p)
{
    const int64_t rows = t->ndim > 0 ? t->dims[0] : 1, columns = t->ndim > 1 ? t->dims[1] : 1;
    const bool is_inside = p->row >= 0 && p->rows > 0 && p->column >= 0 && p->columns > 0 &&
                           p->rows <= rows - p->row && p->columns <= columns - p->column &&
                           p->row <= rows && p->column <= columns;
    if (!is_inside || p->stripe == 0) return is_inside;
    return p->stripe > 0 && p->stripe <= rows && p->own > 0 && p->offset >= 0 &&
           p->own <= p->stripe && p->offset <= p->stripe - p->own && p->first >= 0 &&
           p->first <= rows && plan_piece_row(p, p->rows - 1) < rows;
}

// Returns whether the list has an expert of the tensor for each slot.
static bool are_experts(const ckpt_tensor *t, const json *expert_of)
{
    const int64_t count = json_count(expert_of), rows = t->ndim > 0 ? t->dims[0] : 1;
    bool is_right = count > 0 && rows % count == 0;
    for (int64_t i = 0; i < count && is_right; i++) {
        const int64_t expert = json_int(json_at(expert_of, i), -1);
        is_right = expert >= 0 && expert < count;
    }
    return is_right;
}

static status line_compare(ckpt_reader *r, const json *line, int64_t rank, text *report,
                           ckpt_compared *out)
{
    const char *name = json_text(json_get(line, "name"), "");
    const plan_piece p = {.row = json_int(json_get(line, "row"), -1),
                          .rows = json_int(json_get(line, "rows"), -1),
                          .column = json_int(json_get(line, "column"), -1),
                          .columns = json_int(json_get(line, "columns"), -1),
                          .stripe = json_int(json_get(line, "stripe"), 0),
                          .own = json_int(json_get(line, "own"), 0),
                          .offset = json_int(json_get(line, "offset"), 0),
                          .first = json_int(json_get(line, "first"), 0)};
    const void *bytes = NULL;
    if (json_int(json_get(line, "rank"), -1) != rank) return ST_OK;
    const ckpt_tensor *t = ckpt_reader_find(r, name);
    if (t == NULL) return ST_OK; // working copies that follow from their masters
    const json *expert_of = json_get(line, "expert_of");
    if (!fits(t, &p) || (expert_of != NULL && !are_experts(t, expert_of)))
        return fail(ST_DAMAGED, "the recording has a piece outside of %s", name);
    TRY(ckpt_reader_data(r, t, &bytes));
    char *piece = malloc((size_t)(p.rows * p.columns * dtype_bytes(t->type)));
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory for a piece of %s", name);
    const uint64_t hash = piece_hash(t, expert_of, bytes, &p, piece);
    free(piece);
    const char *recorded = json_text(json_get(line, "hash"), "");
    const bool agrees = strtoull(recorded, NULL, 16) == hash && strlen(recorded) == 16;
    out->agree += agrees;
    out->differ += !agrees;
    if (agrees) return ST_OK;
    return text_add(report, "%s, rows %lld to %lld\n", name, (long long)p.row,
                    (long long)(p.row + p.rows - 1));
}

status ckpt_recording_compare(const host *h, const char *recording, int64_t bytes,
                              const char *checkpoint, int64_t rank, text *report,
                              ckpt_compared *out)
{
    ckpt_reader *r = NULL;
    char what[64];
    int64_t lines = 0;
    status st = ST_OK;
    *out = (ckpt_compared){0};
    TRY(ckpt_reader_open(h, checkpoint, &r));
    for (int64_t at = 0; at < bytes && st == ST_OK;) {
        const char *end = memchr(recording + at, '\n', (size_t)(bytes - at));
        const int64_t n = end != NULL ? end - (recording + at) : bytes - at;
        json *line = NULL;
        (void)snprintf(what, sizeof(what), "recording, line %lld", (long long)++lines);
        st = json_parse(recording + at, n, what, &line);
        if (st == ST_OK && lines == 1) {
            out->step = json_int(json_get(line, "step"), -1);
            out->ranks = json_int(json_get(line, "ranks"), -1);
            if (rank < 0 || rank >= out->ranks) {
                st = fail(ST_USAGE, "--rank %lld; the recording has ranks 0 to %lld",
                          (long long)rank, (long long)out->ranks - 1);
            }
        } else if (st == ST_OK) {
            st = line_compare(r, line, rank, report, out);
        }
        if (line != NULL) json_free(line);
        at += n + 1;
    }
    ckpt_reader_close(r);
    return st;
}
