// Muon: momentum, orthogonalised by five Newton-Schulz steps. Source: Jordan et al. 2024,
// kellerjordan.github.io/posts/muon; the variant of torch.optim.Muon.
//
// Muon takes weights of two dims except embeddings and head. Its unit is the matrix, so it
// orthogonalises the parts of a fused weight separately, and so the matrices of experts that are
// stacked in one weight: gate, up and down of each. If tp cuts a matrix, every rank keeps its
// piece of the state; the ranks gather the directions, all of them orthogonalise the whole, and
// each takes its own piece of the result:
//
//   grad, m -> m, u of the piece | ALL_GATHER u | orthogonal(u) -> master, weight of the piece
#include "assemble/optim/optim.h"

typedef struct tensors {
    tensor_id grad, master, m,
        weight; // weight: the working copy; TENSOR_NONE: the master serves as weight
} tensors;

static op_node node_of(op_code code, const op_weight *w, int32_t weight_index, const run_config *r)
{
    op_node node = op_node_of(code);
    node.attrs = (op_attrs){.tensor_index = weight_index,
                            .decay = w->decay,
                            .nesterov = r->optimizer.nesterov,
                            .match_rms = r->optimizer.muon_lr_adjust == RUN_MUON_MATCH_RMS_ADAMW,
                            .stochastic = r->optimizer.stochastic_rounding,
                            .momentum = (float)r->optimizer.momentum,
                            .weight_decay = (float)r->optimizer.weight_decay,
                            .eps = 1e-7f, // the clamp of the norm, not optimizer.eps
                            .lr_scale = 1.0f};
    if (w->matrix_rows > 0) {
        ASSERT(w->rows % w->matrix_rows == 0);
        node.attrs.experts = (int32_t)(w->rows / w->matrix_rows);
    }
    node.piece.part_count = w->part_count;
    for (int i = 0; i < w->part_count; i++) node.piece.part_rows[i] = w->parts[i].rows;
    return node;
}

static status whole_emit(op_program *p, op_node node, const tensors *t)
{
    node.in[0] = t->grad;
    node.in[1] = node.out[0] = t->master;
    node.in[2] = node.out[1] = t->m;
    node.out[2] = t->weight;
    return op_append(p, OP_FORWARD, &node, 0);
}

// ---- pieces -------------------------------------------------------------------------------------

static int64_t whole_rows_of(const op_weight *w)
{
    int64_t rows = 0;
    for (int i = 0; i < w->part_count; i++) rows += op_weight_piece(w, i).whole_rows;
    return rows;
}

// All ranks' pieces are equal.
static status even_check(const op_weight *w, int32_t ways)
{
    const int64_t columns = op_weight_piece(w, 0).whole_columns;
    const bool by_rows = w->cut_dim[AXIS_TP] == 0;
    for (int i = 0; i < (by_rows ? w->part_count : 1); i++) {
        const int64_t size = by_rows ? op_weight_piece(w, i).whole_rows : columns;
        if (size % ways == 0) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "optimizer.name = muon: layout.tp = %d does not divide the %lld %s of %s", ways,
                    (long long)size, by_rows ? "rows" : "columns", w->parts[i].name);
    }
    return ST_OK;
}

static status work_make(op_program *p, const char *name, int64_t rows, int64_t columns,
                        tensor_id *out)
{
    return op_tensor_make(p, name, ROLE_ACTIVATION, DTYPE_F32, 2, extent_of(rows),
                          extent_of(columns), out);
}

// Rows: each part is gathered in place; if several ranks hold the same rows, each contributes its
// share.
static status rows_gather(op_program *p, const op_weight *w, tensor_id u, tensor_id *whole)
{
    op_node gather = op_node_of(OP_ALL_GATHER);
    gather.attrs.axis = AXIS_TP;
    gather.piece.part_count = w->part_count;
    for (int i = 0; i < w->part_count; i++) {
        int64_t rows = 0;
        gather.piece.part_first[i] = w->parts[i].row_begin + op_part_share(w, i, w->at, &rows);
        gather.piece.part_rows[i] = rows;
        gather.piece.part_whole[i] = op_weight_piece(w, i).whole_rows;
    }
    TRY(work_make(p, "whole", whole_rows_of(w), w->columns, whole));
    gather.in[0] = u;
    gather.out[0] = *whole;
    return op_append(p, OP_FORWARD, &gather, 0);
}

// Columns: gathered rank after rank, then joined column by column.
static status columns_gather(op_program *p, const op_weight *w, tensor_id u, tensor_id *whole)
{
    op_node gather = op_node_of(OP_ALL_GATHER), put = op_node_of(OP_UNPACK);
    gather.attrs.axis = AXIS_TP;
    gather.attrs.stacked = true;
    put.piece.shard_count = w->ways;
    TRY(work_make(p, "tiles", w->ways * w->rows, w->columns, &gather.out[0]));
    TRY(work_make(p, "whole", w->rows, w->ways * w->columns, whole));
    gather.in[0] = u;
    put.in[0] = gather.out[0];
    put.out[0] = *whole;
    TRY(op_append(p, OP_FORWARD, &gather, 0));
    return op_append(p, OP_FORWARD, &put, 0);
}

static status piece_emit(op_program *p, const op_weight *w, op_node first, const tensors *t)
{
    int64_t before = 0; // rows of the parts before
    for (int i = 0; i < w->part_count; i++) {
        const weight_piece piece = op_weight_piece(w, i);
        first.piece.part_first[i] = before + piece.row;
        first.piece.part_whole[i] = piece.whole_rows;
        first.piece.whole_columns = piece.whole_columns;
        first.piece.first_column = piece.column;
        before += piece.whole_rows;
    }
    TRY(even_check(w, w->ways));
    op_node second = first;
    second.code = OP_MUON_UPDATE;
    first.in[0] = t->grad;
    first.in[1] = first.out[0] = t->m;
    TRY(work_make(p, "direction", w->rows, w->columns, &first.out[1]));
    TRY(op_append(p, OP_FORWARD, &first, 0));
    const bool by_rows = w->cut_dim[AXIS_TP] == 0;
    TRY(by_rows ? rows_gather(p, w, first.out[1], &second.in[0])
                : columns_gather(p, w, first.out[1], &second.in[0]));
    second.in[1] = second.out[0] = t->master;
    second.out[1] = t->weight;
    return op_append(p, OP_FORWARD, &second, 0);
}

static status emit(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad)
{
    tensors t = {.grad = grad, .m = TENSOR_NONE};
    TRY(assemble_optimizer_master(p, w, r, weight, &t.master, &t.weight));
    TRY(assemble_optimizer_state(p, "m", w, run_config_types(r).moments, &t.m));
    if (w->ways > 1) return piece_emit(p, w, node_of(OP_MUON_DIRECTION, w, weight_index, r), &t);
    return whole_emit(p, node_of(OP_MUON, w, weight_index, r), &t);
}

const assemble_optimizer assemble_optimizer_muon = {.emit = emit};
