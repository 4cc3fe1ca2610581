// Helpers of operation rows: placement rules from text, and the cost of a node.
#include "op/op_internal.h"

#include <string.h>

static placement placement_of(char c)
{
    placement out = {.kind = PLACE_REPLICATE, .dim = 0};
    switch (c) {
    case 'r':
        break;
    case 'p':
        out.kind = PLACE_PARTIAL;
        break;
    default:
        ASSERT(c >= '0' && c < '0' + OP_MAX_DIMS);
        out.kind = PLACE_SHARD;
        out.dim = (int8_t)(c - '0');
        break;
    }
    return out;
}

static op_rule rule_parse(const char *text)
{
    op_rule rule;
    memset(&rule, 0, sizeof(rule)); // PLACE_REPLICATE
    const char *c = text;
    for (int i = 0; *c != ':'; i++, c++) {
        ASSERT(i < OP_MAX_IN);
        rule.in[i] = placement_of(*c);
    }
    c++;
    for (int o = 0; *c != '\0'; o++, c++) {
        ASSERT(o < OP_MAX_OUT);
        rule.out[o] = placement_of(*c);
    }
    return rule;
}

void op_rules(const char *const *texts, int text_count, op_rule *rules, int *count)
{
    ASSERT(text_count < OP_MAX_RULES);
    memset(&rules[0], 0, sizeof(rules[0])); // all replicate
    for (int i = 0; i < text_count; i++) rules[1 + i] = rule_parse(texts[i]);
    *count = 1 + text_count;
}

void op_place_replicate(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    op_rules(NULL, 0, rules, count);
}

void op_node_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                 op_node *piece)
{
    const op_kind *kind = op_kind_of(node->code);
    *piece = *node;
    if (kind->cut != NULL) kind->cut(p, node, rule, ways, at, piece);
}

void op_cut_rows(const op_program *p, tensor_id t, int ways, int at, op_piece *piece)
{
    const extent rows = op_at(p, t)->dims[0];
    ASSERT(rows.symbol == EXTENT_ONE);
    piece->whole_rows = rows.scale;
    piece->first_row = op_piece_begin(rows.scale, ways, at);
}

static double operand_bytes(const op_program *p, tensor_id t, const extent_binding *bound)
{
    if (t == TENSOR_NONE || op_at(p, t)->role == ROLE_STEP) return 0.0;
    return op_elements(p, t, bound) * (double)dtype_bytes(op_at(p, t)->type);
}

op_cost op_cost_bytes(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const op_kind *kind = op_kind_of(node->code);
    op_cost cost = {0.0, 0.0, 0.0};
    for (int i = 0; i < OP_MAX_IN; i++) cost.bytes_read += operand_bytes(p, node->in[i], bound);
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const double bytes = operand_bytes(p, node->out[o], bound);
        cost.bytes_written += bytes;
        if ((kind->accumulates >> o & 1u) != 0) cost.bytes_read += bytes;
    }
    return cost;
}

op_cost op_cost_pointwise(const op_program *p, const op_node *node, const extent_binding *bound,
                          tensor_id t, double per_element)
{
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.flops = per_element * op_elements(p, t, bound);
    return cost;
}

// Returns the extent of a letter of the signature; 0 if its operands are missing.
static double letter_extent(const op_program *p, const op_node *node, char letter,
                            const extent_binding *bound)
{
    const op_kind *kind = op_kind_of(node->code);
    for (int side = 0; side < 2; side++) {
        const tensor_id *operand = side == 0 ? node->in : node->out;
        const char *word = side == 0 ? kind->in : kind->out;
        for (; *word != '\0'; word = op_word_next(word), operand++) {
            for (int d = 0; *operand != TENSOR_NONE && word[1 + d] > ' '; d++) {
                if (word[1 + d] == letter) return op_dim(p, *operand, d, bound);
            }
        }
    }
    return 0.0;
}

bool op_gemm_of(const op_program *p, const op_node *node, const extent_binding *bound, op_gemm *out)
{
    const op_kind *kind = op_kind_of(node->code);
    if (kind->gemm == NULL) return false;
    out->m = letter_extent(p, node, kind->gemm[0], bound);
    out->n = letter_extent(p, node, kind->gemm[1], bound);
    out->k = letter_extent(p, node, kind->gemm[2], bound);
    out->count = 1.0;
    if (node->attrs.experts > 0) { // rows of tokens are distributed among them
        out->count = (double)node->attrs.experts;
        *(kind->grad_of == GRAD_OF_WEIGHT ? &out->k : &out->m) /= out->count;
    }
    return true;
}

bool op_adds_loss(op_code code)
{
    const uint32_t writes = op_kind_of(code)->step_writes;
    return (writes & STEP_FIELD_LOSS_SUM) != 0 && (writes & STEP_FIELD_NORM_SUM) == 0;
}

bool op_adds_norm(op_code code)
{
    const uint32_t writes = op_kind_of(code)->step_writes;
    return (writes & STEP_FIELD_NORM_SUM) != 0 && (writes & STEP_FIELD_LOSS_SUM) == 0;
}

bool op_adds_loads(op_code code)
{
    const uint32_t writes = op_kind_of(code)->step_writes;
    return (writes & STEP_FIELD_LOADS) != 0 && (writes & STEP_FIELD_LOSS_SUM) == 0;
}

int op_tiled_input(op_code code)
{
    int at = OP_MAX_IN - 1;
    while (at >= 0 && (op_kind_of(code)->tiles >> at & 1u) == 0) at--;
    return at;
}

bool op_decides(op_code code)
{
    return (op_kind_of(code)->step_writes & STEP_FIELD_COUNTS) != 0;
}

op_cost op_node_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_kind_of(node->code)->cost(p, node, bound);
}
