// The page of one rank, from its own plan: its place, its groups, its work, its collectives in
// order, and its tensors.
//
// Equal things of many layers or micro-batches share a line: names that differ only in numbers are
// merged, with a star for the numbers.
#include "cli/explain/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_LINES = 512 };

// A line of the page.
enum { RANGES = 4 };
typedef struct line {
    char name[PLAN_NAME_BYTES];        // without its numbers
    int64_t low[RANGES], high[RANGES]; // the numbers of its first star
    int ranges;                        // RANGES + 1: more
    int64_t times, bytes;
    int32_t first, last;      // micro-batches; -1: once, at the step's end
    const plan_comm *comm;    // of a collective
    const plan_tensor *whole; // of a tensor: the first one
} line;

typedef struct lines {
    line *items;
    int64_t count;
    int64_t more; // lines that did not fit
} lines;

// "layers.31.attn" -> "layers.*.attn", and 31; -1 without a number. Of several numbers it returns
// the first.
static int64_t star(const char *name, char out[PLAN_NAME_BYTES])
{
    int64_t number = -1;
    size_t n = 0;
    for (const char *p = name; *p != '\0' && n < PLAN_NAME_BYTES - 1;) {
        if (*p < '0' || *p > '9') {
            out[n++] = *p++;
            continue;
        }
        char *end = NULL;
        const long value = strtol(p, &end, 10);
        if (number < 0) number = value;
        out[n++] = '*';
        p = end;
    }
    out[n] = '\0';
    return number;
}

static line *line_find(lines *l, const char *name, const plan_comm *c, const plan_tensor *t)
{
    for (int64_t i = 0; i < l->count; i++) {
        line *at = &l->items[i];
        if (strcmp(at->name, name) != 0) continue;
        if (c != NULL &&
            (at->comm->op != c->op || at->comm->group != c->group || at->comm->peer != c->peer)) {
            continue;
        }
        if (t != NULL && at->whole->type != t->type) continue;
        return at;
    }
    if (l->count == PAGE_LINES) {
        l->more++;
        return NULL;
    }
    line *fresh = &l->items[l->count++];
    *fresh = (line){.first = INT32_MAX, .last = -1, .comm = c};
    fresh->whole = t;
    (void)snprintf(fresh->name, sizeof(fresh->name), "%s", name);
    return fresh;
}

static void range_add(line *at, int64_t number)
{
    for (int i = 0; i < at->ranges; i++) {
        if (number >= at->low[i] && number <= at->high[i]) return;
        if (number == at->high[i] + 1) {
            at->high[i]++;
            return;
        }
        if (number == at->low[i] - 1) {
            at->low[i]--;
            return;
        }
    }
    if (at->ranges < RANGES) {
        at->low[at->ranges] = number;
        at->high[at->ranges] = number;
    }
    at->ranges++;
}

// "layers.4-5,12-13.attn.qkv".
static const char *line_name(const line *at, char out[2 * PLAN_NAME_BYTES])
{
    char numbers[PLAN_NAME_BYTES] = "";
    size_t n = 0;
    if (at->ranges == 0 || at->ranges > RANGES) {
        (void)snprintf(out, 2 * PLAN_NAME_BYTES, "%s", at->name);
        return out;
    }
    for (int i = 0; i < at->ranges && n < sizeof(numbers) - 1; i++) {
        const long long low = (long long)at->low[i], high = (long long)at->high[i];
        const char *comma = i > 0 ? "," : "";
        n += (size_t)(low == high ? snprintf(numbers + n, sizeof(numbers) - n, "%s%lld", comma, low)
                                  : snprintf(numbers + n, sizeof(numbers) - n, "%s%lld-%lld", comma,
                                             low, high));
    }
    const char *place = strchr(at->name, '*');
    (void)snprintf(out, 2 * PLAN_NAME_BYTES, "%.*s%s%s", (int)(place - at->name), at->name, numbers,
                   place + 1);
    return out;
}

static void line_add(line *at, int64_t number, int64_t bytes, int32_t microbatch)
{
    if (number >= 0 && at->ranges <= RANGES) range_add(at, number);
    at->times++;
    at->bytes += bytes;
    if (microbatch < at->first) at->first = microbatch;
    if (microbatch > at->last) at->last = microbatch;
}

// ---- its place ----------------------------------------------------------------------------------

static void print_place(const explain *x, const plan *p, const plan_mesh *mesh, int64_t rank)
{
    char number[32], ranks[32], layers[64], first[32], last[32], all[32];
    const schedule_request *r = &x->pipe.shape;
    cli_print(x->cli, "rank      %s of %s: pp %d, dp %d, cp %d, tp %d\n",
              text_grouped(rank, number), text_grouped(x->ranks, ranks), mesh->at[AXIS_PP],
              mesh->at[AXIS_DP], mesh->at[AXIS_CP], mesh->at[AXIS_TP]);
    for (int32_t c = 0; c < r->chunks; c++) {
        const int32_t stage = plan_schedule_stage(x->schedule, r, mesh->at[AXIS_PP], c);
        cli_print(x->cli, "%-9s stage %d of %d: %s%s", c == 0 ? "layers" : "", stage, x->pipe.depth,
                  explain_layers(x, stage, layers), "");
        if (r->chunks > 1) cli_print(x->cli, " (chunk %d)", c);
        cli_print(x->cli, "\n");
    }
    cli_print(x->cli, "step      %d micro-batches of %lld x %lld tokens; sequences %s-%s of %s\n",
              r->microbatches, (long long)p->micro_batch, (long long)p->seq,
              text_grouped(p->first_sequence, first),
              text_grouped(p->first_sequence + p->own_sequences - 1, last),
              text_grouped(p->sequences, all));
}

// ---- its groups ---------------------------------------------------------------------------------

static status print_group(const explain *x, const plan_mesh *mesh, const plan_group *g)
{
    enum { SHOWN = 4 };
    static const char *const uses[] = {[GROUP_OVERLAPPED] = "overlapped with computation",
                                       [GROUP_INLINE] = "between computations",
                                       [GROUP_RING] = "overlapped with computation, in a ring",
                                       [GROUP_LINK_FORWARD] = "activations",
                                       [GROUP_LINK_BACKWARD] = "their gradients",
                                       [GROUP_PAIR] = "weights that both ranks hold"};
    char name[PLAN_GROUP_NAME_BYTES], number[32];
    const int64_t size = plan_group_size(mesh, g);
    const int32_t own = plan_group_place(mesh, g);
    text t = {.a = x->cli->a};
    plan_group_name(g, name);
    for (int64_t i = 0; i < size; i++) {
        if (size > 2 * SHOWN && i == SHOWN) {
            TRY(text_add(&t, " ..."));
            i = size - 2;
        }
        TRY(text_add(&t, i == own ? " [%s]" : " %s",
                     text_grouped(plan_group_member(mesh, g, i), number)));
    }
    cli_print(x->cli, "  %-13s %5lld ranks:%s; %s\n", name, (long long)size, t.bytes, uses[g->use]);
    return ST_OK;
}

static status print_groups(const explain *x, const assemble_plans *plans, const plan_mesh *mesh)
{
    if (plans->run.group_count == 0) {
        cli_print(x->cli, "groups    none: it works alone\n");
        return ST_OK;
    }
    cli_print(x->cli, "groups    this rank in brackets\n");
    for (int64_t i = 0; i < plans->run.group_count; i++) {
        TRY(print_group(x, mesh, &plans->run.groups[i]));
    }
    return ST_OK;
}

// ---- its collectives ----------------------------------------------------------------------------

static int64_t comm_bytes(const plan *p, const plan_comm *c)
{
    int64_t count = 0;
    for (int32_t i = 0; i < c->items_count; i++) count += p->items[c->items_begin + i].count;
    return count * dtype_bytes(c->type);
}

static status transfers_gather(const plan *p, lines *l)
{
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind != ACTION_COMMUNICATE) continue;
        const plan_comm *c = &p->comms[a->comm];
        char name[PLAN_NAME_BYTES];
        char *end = NULL;
        int64_t number = star(c->name, name);
        if (c->op == COLLECTIVE_SEND ||
            c->op == COLLECTIVE_RECEIVE) { // the group determines the stages
            number = -1;
            if ((end = strchr(name, ',')) != NULL) *end = '\0';
        }
        line *at = line_find(l, name, c, NULL);
        if (at != NULL) line_add(at, number, comm_bytes(p, c), a->microbatch);
    }
    return ST_OK;
}

static void print_messages(const explain *x, const assemble_plans *plans, const lines *l)
{
    cli_print(x->cli, "transfers of a step, in the order in which they begin\n");
    if (l->count == 0) cli_print(x->cli, "  none\n");
    for (int64_t i = 0; i < l->count; i++) {
        const line *at = &l->items[i];
        char group[PLAN_GROUP_NAME_BYTES], human[32], name[2 * PLAN_NAME_BYTES];
        char when[40] = "at the end";
        plan_group_name(&plans->run.groups[at->comm->group], group);
        if (at->first >= 0 && at->first == at->last) {
            (void)snprintf(when, sizeof(when), "micro-b. %d", at->first);
        } else if (at->last >= 0) {
            (void)snprintf(when, sizeof(when), "micro-b. %d-%d", at->first < 0 ? 0 : at->first,
                           at->last);
        }
        cli_print(x->cli, "  %-14s %-13s %4lld x %9s  %-14s %s\n", op_collective_name(at->comm->op),
                  group, (long long)at->times, text_bytes_human(at->bytes / at->times, human), when,
                  line_name(at, name));
    }
    if (l->more > 0) cli_print(x->cli, "  and %lld more\n", (long long)l->more);
}

// ---- its tensors --------------------------------------------------------------------------------

static void tensors_gather(const assemble_plans *plans, lines *l)
{
    for (int64_t i = 0; i < plans->run.count; i++) {
        const plan_tensor *t = &plans->run.tensors[i];
        char name[PLAN_NAME_BYTES];
        const int64_t number = star(t->name, name);
        line *at = line_find(l, name, NULL, t);
        if (at != NULL) line_add(at, number, t->bytes, 0);
    }
}

static void print_tensors(const explain *x, const lines *l)
{
    cli_print(x->cli, "tensors   that live for the whole run\n");
    for (int64_t i = 0; i < l->count; i++) {
        const line *at = &l->items[i];
        char shape[80] = "", human[32], name[2 * PLAN_NAME_BYTES];
        int used = 0;
        for (int k = 0; k < at->whole->ndim && used < (int)sizeof(shape) - 24; k++) {
            used += snprintf(shape + used, sizeof(shape) - (size_t)used,
                             k == 0 ? "%lld" : " x %lld", (long long)at->whole->dims[k]);
        }
        cli_print(x->cli, "  %-36s %3lld x %-5s %-15s %10s\n", line_name(at, name),
                  (long long)at->times, dtype_name(at->whole->type), shape,
                  text_bytes_human(at->bytes, human));
    }
    if (l->more > 0) cli_print(x->cli, "  and %lld more\n", (long long)l->more);
}

status explain_rank_page(const explain *x, const assemble_plans *plans, int64_t rank)
{
    const plan_mesh mesh = run_config_mesh(x->r, rank);
    const plan *p = assemble_plan_of(plans, run_config_batch_max(x->r), false);
    lines transfers = {0}, tensors = {0};
    text memory = {.a = x->cli->a};
    TRY(arena_new(x->cli->a, PAGE_LINES, &transfers.items));
    TRY(arena_new(x->cli->a, PAGE_LINES, &tensors.items));
    print_place(x, p, &mesh, rank);
    TRY(explain_row(x, mesh.at[AXIS_PP]));
    TRY(print_groups(x, plans, &mesh));
    TRY(transfers_gather(p, &transfers));
    print_messages(x, plans, &transfers);
    tensors_gather(plans, &tensors);
    print_tensors(x, &tensors);
    TRY(plan_print_memory(p, plans->arena_bytes, assemble_snapshot_bytes(plans),
                          assemble_copies_bytes(plans), 0, &memory));
    cli_print(x->cli, "bytes     at the peak\n");
    cli_print_text(x->cli, &memory);
    return ST_OK;
}
