// Chooses the algorithm of an operation: by name, by the tuning table, else the first row that
// fits.
//
// The choice depends only on values that are equal on all ranks, so not on the address of a buffer.
#include "comm/comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns the bytes of the largest operand of a rank.
static int64_t operand_bytes(const comm_group *g, const comm_args *args)
{
    if (args->op == COLLECTIVE_ALL_TO_ALLV) return 0;
    const comm_shape shape = comm_shape_of(args->op, g->size, true);
    const int pieces = shape.in_pieces > shape.out_pieces ? shape.in_pieces : shape.out_pieces;
    return comm_args_count(args) * dtype_bytes(args->type) * pieces;
}

// Integers, max and min have the same bits in every order.
static bool order_fits(const comm_algorithm *a, const comm_args *args)
{
    const bool adds = comm_shape_of(args->op, 2, false).adds;
    const bool rounds = args->type == DTYPE_F32 || args->type == DTYPE_BF16 ||
                        args->type == DTYPE_F16 || args->type == DTYPE_F64 ||
                        args->reduction == REDUCTION_AVG;
    const bool extreme = args->reduction == REDUCTION_MAX || args->reduction == REDUCTION_MIN;
    if (!adds || args->order == COMM_ORDER_ANY || !rounds || extreme) return true;
    return a->order == args->order;
}

static bool rounds_between(const comm_args *args)
{
    if (!comm_shape_of(args->op, 2, false).adds) return false;
    const bool narrow = args->type == DTYPE_BF16 || args->type == DTYPE_F16;
    return args->reduction == REDUCTION_AVG || (narrow && args->reduction == REDUCTION_SUM);
}

// Returns why the row cannot run the operation; NULL: it can.
static const char *obstacle(const comm_group *g, const comm_args *args, const comm_algorithm *a)
{
    const comm_transport *t = g->transport;
    if (a->op != args->op) return "it is of another operation";
    if (a->direct && !t->direct) return "the transport has no memory in common";
    if (!a->direct && !t->messages) return "the transport has no messages";
    const bool is_message = a->op == COLLECTIVE_SEND || a->op == COLLECTIVE_RECEIVE;
    // NCCL sends rows itself.
    const bool on_device = args->on_device && !comm_group_rows_posts(g, args);
    if (on_device && !a->direct && !is_message) return "the operands lie in memory of a GPU";
    if (a->levels && !g->has_levels) return "the group has no two levels";
    if (a->levels && rounds_between(args)) return "it would round between the levels";
    if (a->bounded && args->send_offsets == NULL) return "it wants to know the most that may come";
    if (!a->ends && comm_args_end(args)) return "it wants equal pieces";
    if (a->power_of_two && (g->size & (g->size - 1)) != 0) return "it wants 2^k ranks";
    if (a->max_ranks > 0 && g->size > a->max_ranks) return "there are too many ranks";
    if (a->max_bytes > 0 && operand_bytes(g, args) > a->max_bytes)
        return "the operand is too large";
    if (!a->items && args->item_count > 1) return "it takes one tensor at a time";
    if (!a->terms && args->terms != NULL && args->term_count > 0) return "it takes no tree nodes";
    if (!order_fits(a, args)) return "it sums in another order";
    return NULL;
}

static status by_name(const comm_group *g, const comm_args *args, int *out)
{
    for (int i = 0; i < comm_algorithm_count(); i++) {
        const comm_algorithm *a = comm_algorithm_table[i];
        if (a->op != args->op || strcmp(a->name, args->algorithm) != 0) continue;
        const char *why = obstacle(g, args, a);
        if (why != NULL) {
            return fail(ST_UNSUPPORTED, "algorithm %s of %s cannot serve %d ranks here: %s",
                        a->name, op_collective_name(args->op), g->size, why);
        }
        *out = i;
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "there is no algorithm \"%s\" of %s", args->algorithm,
                op_collective_name(args->op));
}

static status search(const comm_group *g, const comm_args *args, int *out)
{
    const comm *c = g->owner;
    const int64_t bytes = operand_bytes(g, args);
    for (int i = 0; i < c->rule_count; i++) {
        const comm_rule *r = &c->rules[i];
        if (r->op != args->op || r->ranks != g->size || bytes > r->max_bytes) continue;
        if (obstacle(g, args, comm_algorithm_table[r->algorithm]) != NULL) continue;
        *out = r->algorithm;
        return ST_OK;
    }
    for (int i = 0; i < comm_algorithm_count(); i++) {
        if (obstacle(g, args, comm_algorithm_table[i]) != NULL) continue;
        *out = i;
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "no algorithm of %s with order %s serves %d ranks over %s",
                op_collective_name(args->op), comm_order_name(args->order), g->size,
                g->transport->name);
}

status comm_algorithm_choose(comm_group *g, comm_memo *memo, const comm_args *args, int *out)
{
    if (args->algorithm != NULL) return by_name(g, args, out);
    // All that the choice depends on. Bytes: only if something asks for them.
    const uint64_t key = UINT64_C(1) << 63 | (uint64_t)args->type << 24 |
                         (uint64_t)args->reduction << 16 | (uint64_t)args->order << 8 |
                         (uint64_t)args->on_device << 2 | (uint64_t)(args->item_count > 1) << 1 |
                         (uint64_t)(args->terms != NULL && args->term_count > 0);
    if (memo->chosen_key[args->op] == key) {
        *out = memo->chosen[args->op];
        return ST_OK;
    }
    TRY(search(g, args, out));
    if (g->owner->rule_count > 0 || !comm_algorithm_table[*out]->direct)
        return ST_OK; // others ask for bytes
    memo->chosen_key[args->op] = key;
    memo->chosen[args->op] = *out;
    return ST_OK;
}

// Returns whether peers cannot reach a buffer.
static bool is_private(const comm_group *g, const void *at, int64_t bytes)
{
    return at != NULL && bytes > 0 && g->transport->locate != NULL &&
           g->transport->locate(g->port->link, at, bytes).region == COMM_PRIVATE;
}

status comm_choose(comm_group *g, const comm_args *args, comm_choice *out)
{
    int number = 0;
    TRY(comm_args_check(args, g->rank, g->size));
    TRY(comm_algorithm_choose(g, &g->caller, args, &number));
    const comm_algorithm *a = comm_algorithm_table[number];
    out->algorithm = a->name;
    out->order = a->order;
    out->staged = false;
    const int64_t width = dtype_bytes(args->type);
    for (int i = 0; i < args->item_count && operand_bytes(g, args) > g->port->inline_bytes; i++) {
        const comm_item *item = &args->items[i];
        out->staged = out->staged || is_private(g, item->in, item->count * width) ||
                      is_private(g, item->out, item->count * width);
    }
    return ST_OK;
}

// ---- the tuning table ---------------------------------------------------------------------------
// Lines "op ranks max_bytes algorithm"; '#' begins a comment. The first rule that fits is taken.
status comm_rules_read(comm *c, const char *tuning)
{
    int line_no = 0;
    for (const char *line = tuning; line != NULL && *line != '\0'; line_no++) {
        const char *end = strchr(line, '\n');
        const size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        char text[160], op[32], algorithm[32], rest[2];
        comm_rule r = {0};
        long long bytes = 0;
        (void)snprintf(text, sizeof(text), "%.*s", (int)(length < 159 ? length : 159), line);
        line = end != NULL ? end + 1 : NULL;
        char *comment = strchr(text, '#');
        if (comment != NULL) *comment = '\0';
        if (strspn(text, " \t\r") == strlen(text)) continue;
        if (sscanf(text, "%31s %d %lld %31s %1s", op, &r.ranks, &bytes, algorithm, rest) != 4 ||
            !op_collective_parse(op, &r.op) || r.ranks < 1 || bytes < 0) {
            return fail(ST_CONFIG_SYNTAX,
                        "line %d of the table of collectives is \"%s\", expected \"op ranks bytes "
                        "algorithm\"",
                        line_no + 1, text);
        }
        r.max_bytes = bytes;
        const comm_algorithm *found = comm_algorithm_find(r.op, algorithm);
        if (found == NULL) {
            return fail(ST_CONFIG,
                        "line %d of the table of collectives: there is no algorithm \"%s\" of "
                        "%s",
                        line_no + 1, algorithm, op);
        }
        while (comm_algorithm_table[r.algorithm] != found) r.algorithm++;
        if (c->rule_count == COMM_MAX_CHOICES) {
            return fail(ST_CONFIG_RANGE, "the table of collectives has more than %d rules",
                        (int)COMM_MAX_CHOICES);
        }
        c->rules[c->rule_count++] = r;
    }
    return ST_OK;
}
