// Prices of operations; cost.h lists what each kind costs.
//
// All functions are arithmetic on plain data. Prices are monotone in the sizes: a larger GEMM is
// never cheaper, and neither is a larger collective (cost_test.c).
#include "cost/cost_internal.h"

#include "op/op.h"

#include <math.h>
#include <string.h>

cost_profile cost_profile_trireme(void)
{
    return (cost_profile){.name = "trireme",
                          .about = "what this program does: the plan as it is",
                          .gemm = 1.0,
                          .attention = 1.0,
                          .memory = 1.0,
                          .launch = 1.0,
                          .bandwidth = {1.0, 1.0, 1.0, 1.0, 1.0},
                          .overlap = {[TRAFFIC_DP] = 1.0, [TRAFFIC_PP] = 1.0}};
}

// ---- GEMMs -------------------------------------------------------------------------------------

// Units that can also multiply the type, the nearest first; MATH_COUNT ends the list.
cluster_math cost_math_of(const cluster_device *d, dtype type)
{
    static const cluster_math wide[] = {MATH_FP32, MATH_TF32, MATH_FP64, MATH_BF16, MATH_COUNT};
    static const cluster_math bf16[] = {MATH_BF16, MATH_FP16, MATH_TF32, MATH_FP32, MATH_COUNT};
    static const cluster_math fp16[] = {MATH_FP16, MATH_BF16, MATH_TF32, MATH_FP32, MATH_COUNT};
    static const cluster_math fp64[] = {MATH_FP64, MATH_FP32, MATH_COUNT};
    const cluster_math *order = wide;
    if (type == DTYPE_BF16) order = bf16;
    if (type == DTYPE_F16) order = fp16;
    if (type == DTYPE_F64) order = fp64;
    for (int i = 0; order[i] != MATH_COUNT; i++) {
        if (d->peak_flops[order[i]] > 0.0) return order[i];
    }
    return order[0];
}

double cost_peak_flops(const cluster_device *d, dtype type)
{
    return d->peak_flops[cost_math_of(d, type)];
}

bool cost_is_processor(const cluster_device *d)
{
    return d->maker != NULL && strcmp(d->maker, "cpu") == 0;
}

static void shares_scale(cluster_device *d, double gain)
{
    for (int i = 0; i < MATH_COUNT; i++) d->gemm_share[i] = fmin(1.0, d->gemm_share[i] * gain);
    d->attention_forward_share = fmin(1.0, d->attention_forward_share * gain);
    d->attention_backward_share = fmin(1.0, d->attention_backward_share * gain);
}

void cost_limit_power(cluster_device *d)
{
    if (d->limit_watts <= 0.0 || d->limit_watts >= d->watts) return;
    shares_scale(d, sqrt((d->limit_watts - d->idle_watts) / (d->watts - d->idle_watts)));
    d->sold_watts = d->watts;
    d->watts = d->limit_watts;
}

void cost_units_share(cluster_device *d, int64_t ranks)
{
    const double units = (double)max_i64(d->units, 1);
    const double left = fmax(1.0, floor(units / (double)ranks)); // units of each rank
    d->units = (int32_t)left;
    if (d->team <= 0.0 || units < 2.0) return;
    const double gain = pow(d->team, log2(left) / log2(units) - 1.0);
    shares_scale(d, gain);
    d->pointwise_fp32_s *= gain;
    d->pointwise_16_s *= gain;
    d->team = pow(d->team, log2(left) / log2(units));
}

static double half(double size, double half_size)
{
    return size / (size + half_size);
}

// Share of the computed work (whole tiles in whole waves) that the GEMM needs. Libraries choose
// among tile sizes and split long sums into pieces if there are few tiles; smaller tiles and pieces
// lose some reuse. `count` GEMMs of one shape share the waves.
static double tiles_share(const cluster_device *d, const cost_gemm *p, double count)
{
    static const struct {
        double m, n, reuse; // of the usual tile
    } tiles[] = {
        {1.0, 1.0, 1.0}, {0.5, 1.0, 0.92}, {1.0, 0.5, 0.92}, {0.5, 0.5, 0.8}, {0.25, 0.5, 0.6}};
    double best = 0.0;
    if (d->tile_m <= 0 || d->tile_n <= 0) return 1.0;
    const double units = d->units > 0 ? d->units : 1.0;
    for (int i = 0; i < COUNT_OF(tiles); i++) {
        const double tile_m = d->tile_m * tiles[i].m, tile_n = d->tile_n * tiles[i].n;
        const double across = ceil(p->m / tile_m), down = ceil(p->n / tile_n);
        const double edge = p->m * p->n / (across * tile_m * down * tile_n);
        for (int s = 0; s < 4; s++) {
            const double pieces = (double)(1 << s);
            const double work = count * across * down * pieces, waves = ceil(work / units);
            // Each piece is written and added to the others, at the price of some steps of k.
            const double added = s == 0 ? 0.0 : 4.0 * d->tile_k * pieces;
            const double share =
                tiles[i].reuse * edge * work / (waves * units) * p->k / (p->k + added);
            if (share > best) best = share;
        }
    }
    return best;
}

static double gemms_share(const cluster_device *d, const cost_gemm *p, cluster_math math,
                          double count)
{
    double share = d->gemm_share[math];
    if (share <= 0.0) share = d->gemm_share[MATH_BF16];
    if (share <= 0.0) share = 1.0;
    const bool is_fp8 = math == MATH_FP8 && d->gemm_half_k_fp8 > 0.0;
    share *= half(p->m, d->gemm_half_m) * half(p->n, d->gemm_half_n);
    share *= half(p->k, is_fp8 ? d->gemm_half_k_fp8 : d->gemm_half_k);
    return share * tiles_share(d, p, count);
}

double cost_gemm_share(const cluster_device *d, const cost_gemm *p, cluster_math math)
{
    return gemms_share(d, p, math, 1.0);
}

// The device's rate; memory_rate() is the rate that a profile's kernels reach.
static double device_memory_rate(const cluster_device *d)
{
    return d->memory_bytes_s * (d->memory_share > 0.0 ? d->memory_share : 1.0);
}

static double memory_rate(const cost_model *m)
{
    return device_memory_rate(&m->c->device) * m->profile->memory;
}

static double gemms_s(const cost_model *m, const cost_gemm *p, dtype type, double bytes,
                      double count)
{
    const cluster_device *d = &m->c->device;
    if (p->m <= 0.0 || p->n <= 0.0 || p->k <= 0.0) return 0.0;
    const cluster_math math = cost_math_of(d, type);
    const double share = gemms_share(d, p, math, count) * m->profile->gemm;
    const double work = cost_over(2.0 * count * p->m * p->n * p->k, d->peak_flops[math] * share);
    return fmax(work, cost_over(bytes, memory_rate(m)));
}

static double gemm_s(const cost_model *m, const cost_gemm *p, dtype type, double bytes)
{
    return gemms_s(m, p, type, bytes, 1.0);
}

int64_t cost_gemm_ns(const cost_model *m, const cost_gemm *p, dtype type, double bytes)
{
    return cost_ns_of(gemm_s(m, p, type, bytes));
}

double cost_memory_s(const cost_model *m, double bytes)
{
    if (bytes <= 0.0) return 0.0;
    return cost_over(bytes + m->c->device.memory_half_bytes, memory_rate(m));
}

// One long kernel over a weight runs at the memory's speed, whatever a profile's other kernels
// reach.
double cost_copy_s(const cost_model *m, double bytes)
{
    const cluster_device *d = &m->c->device;
    return cost_over(bytes + d->memory_half_bytes, device_memory_rate(d));
}

int64_t cost_memory_ns(const cost_model *m, double bytes)
{
    return cost_ns_of(cost_memory_s(m, bytes));
}

double cost_launch_s(const cost_model *m)
{
    return m->c->device.launch_s * m->profile->launch;
}

int64_t cost_launch_ns(const cost_model *m)
{
    return cost_ns_of(cost_launch_s(m));
}

// ---- operations --------------------------------------------------------------------------------

double cost_dim_of(const op_program *p, tensor_id t, int dim, const extent_binding *bound)
{
    const op_tensor *x = &p->tensors[t];
    return dim < x->ndim ? (double)extent_likely(x->dims[dim], bound) : 1.0;
}

// Logits go through memory in chunks of rows: written, read for the loss, written and read as
// gradients.
static double head_s(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound, dtype type)
{
    const double rows = cost_dim_of(p, node->in[0], 0, bound),
                 dim = cost_dim_of(p, node->in[0], 1, bound);
    const double vocab = cost_dim_of(p, node->in[1], 0, bound);
    const cost_columns of = cost_habit_columns(m, node, vocab);
    const double made = of.made, columns = of.lost;
    const double chunk = fmin(rows, (double)op_head_chunk_rows((int64_t)made));
    const cost_gemm logits = {chunk, made, dim};
    const cost_gemm dx = {chunk, dim, made}, dw = {made, dim, chunk};
    const double logit_bytes = 4.0 * chunk * columns;
    const bool is_loss = op_kind_of(node->code)->logits == LOGITS_LOSS;
    double s = gemm_s(m, &logits, type, 0.0) + cost_memory_s(m, 2.0 * logit_bytes);
    if (is_loss && node->attrs.kept) s = cost_memory_s(m, logit_bytes);
    if (is_loss && node->out[1] != TENSOR_NONE) {
        s += gemm_s(m, &dx, type, 0.0) + cost_memory_s(m, logit_bytes);
    }
    if (is_loss && node->out[2] != TENSOR_NONE) {
        s += gemm_s(m, &dw, type, 0.0);
    }
    const bool makes = !is_loss || !node->attrs.kept;
    return s * cost_over(rows, chunk) +
           (makes ? cost_habit_logits_s(m, rows, vocab, columns) : 0.0);
}

// The input is read and written in one byte per element, as it is and transposed: the GEMM over
// rows that computes the weights' gradients reads those bytes again. Weights are cast once in a
// step, which is negligible compared with the GEMMs (Transformer Engine keeps the cast weights
// after the first micro-batch, is_first_microbatch).
static double fp8_s(const cost_model *m, const cost_gemm *p, double count, bool casts_rows)
{
    const cluster_device *d = &m->c->device;
    const double share = gemms_share(d, p, MATH_FP8, count) * m->profile->gemm;
    const double flops = 2.0 * count * p->m * p->n * p->k;
    const double casts =
        casts_rows ? 4.0 * count * p->m * p->k * cost_habits_of(m->profile)->pointwise : 0.0;
    return cost_over(flops, d->peak_flops[MATH_FP8] * share) + cost_memory_s(m, casts);
}

static double matmul_s(const cost_model *m, const op_program *p, const op_node *node,
                       const extent_binding *bound, const op_cost *cost, dtype type)
{
    const double bytes = cost->bytes_read + cost->bytes_written;
    op_gemm gemm;
    const bool has_shape = op_gemm_of(p, node, bound, &gemm);
    ASSERT(has_shape);
    const cost_gemm shape = {gemm.m, gemm.n, gemm.k};
    const double count = gemm.count;
    const double uneven = node->attrs.experts > 0 ? cost_habits_of(m->profile)->imbalance : 1.0;
    const bool sums_rows = op_kind_of(node->code)->grad_of == GRAD_OF_WEIGHT;
    const bool fp8 = m->fp8 && type == DTYPE_BF16 && m->c->device.peak_flops[MATH_FP8] > 0.0;
    const double plain = gemms_s(m, &shape, type, bytes, count);
    if (!fp8) return uneven * plain;
    const double cast = fp8_s(m, &shape, count, !sums_rows);
    if (cast >= plain) return uneven * plain; // small GEMMs stay in bf16
    return uneven * (sums_rows ? cost_over(cast, cost_habits_of(m->profile)->product_dw) : cast);
}

static double attention_s(const cost_model *m, const op_program *p, const op_node *node,
                          const extent_binding *bound, const op_cost *cost)
{
    enum { USUAL_HEAD = 128 }; // head size of the devices' entries
    const cluster_device *d = &m->c->device;
    const bool ahead = op_kind_of(node->code)->grad_of == GRAD_OF_NONE;
    double share = ahead ? d->attention_forward_share : d->attention_backward_share;
    if (share <= 0.0) share = d->gemm_share[MATH_BF16] > 0.0 ? d->gemm_share[MATH_BF16] : 1.0;
    const dtype type = p->tensors[node->in[1]].type;
    const double positions =
        cost_over(cost_dim_of(p, node->in[0], 0, bound), (double)bound->value[EXTENT_SEQS]);
    const double own_half = cost_habits_of(m->profile)->attention_half;
    const double at = own_half > 0.0 ? own_half : d->attention_half;
    if (at > 0.0 && positions > 0.0) share *= half(positions, at);
    // A score takes one exponential and other work independent of the head size, and smaller heads
    // have fewer FLOPs per score.
    const double scores = ahead ? d->attention_forward_scores : d->attention_backward_scores;
    const double size = node->attrs.head_dim > 0 ? (double)node->attrs.head_dim : USUAL_HEAD;
    share /= 1.0 - scores + scores * USUAL_HEAD / size;
    // Matrix units load 16 bytes at a time; rows of heads that are no multiple of that are loaded
    // in halves.
    enum { LOAD_BYTES = 16 };
    const int64_t row_bytes = node->attrs.head_dim * dtype_bytes(type);
    if (d->matrix_units_per_unit > 0 && row_bytes % LOAD_BYTES != 0) share /= 2.0;
    // A processor computes attention in fp32 whatever the type of its rows, and its entry gives the
    // share of that type.
    const dtype math = cost_is_processor(d) ? DTYPE_F32 : type;
    const double rate = cost_peak_flops(d, math) * share * m->profile->attention;
    const double bytes = cost->bytes_read + cost->bytes_written;
    return fmax(cost_over(cost->flops, rate), cost_over(bytes, memory_rate(m)));
}

// Time of the bytes, or of the arithmetic on them if that is slower.
static double pointwise_s(const cost_model *m, const op_program *p, const op_node *node,
                          const extent_binding *bound, double bytes)
{
    const op_tensor *x = &p->tensors[node->in[0]];
    const double width = (double)dtype_bytes(x->type);
    const double columns = x->ndim > 0 ? cost_dim_of(p, node->in[0], x->ndim - 1, bound) : 1.0;
    double rate = width < 4.0 ? m->c->device.pointwise_16_s : m->c->device.pointwise_fp32_s;
    if (m->c->device.pointwise_half > 0.0) rate *= half(columns, m->c->device.pointwise_half);
    return fmax(cost_memory_s(m, bytes * cost_habit_moved(m->profile, node->code)),
                cost_over(bytes / width, rate));
}

static double node_s(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound)
{
    const op_cost cost = op_node_cost(p, node, bound);
    const double bytes = cost.bytes_read + cost.bytes_written;
    const cluster_device *d = &m->c->device;
    const op_kind *kind = op_kind_of(node->code);
    switch (kind->cost_class) {
    case COST_FREE:
        return 0.0;
    case COST_ATTENTION:
        return attention_s(m, p, node, bound, &cost);
    case COST_GEMM:
        if (kind->gemm == NULL) {
            const double rate = cost_peak_flops(d, p->compute) * d->gemm_share[MATH_BF16];
            return fmax(cost_over(cost.flops, rate * m->profile->gemm), cost_memory_s(m, bytes));
        }
        if (kind->logits != LOGITS_NONE) {
            return head_s(m, p, node, bound, p->tensors[node->in[1]].type);
        }
        return matmul_s(m, p, node, bound, &cost, p->tensors[node->in[1]].type);
    case COST_MEMORY:
    default:
        return kind->pointwise ? pointwise_s(m, p, node, bound, bytes) : cost_memory_s(m, bytes);
    }
}

int64_t cost_node_ns(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound)
{
    if (op_communicates(node->code)) return 0;
    const bool attends = op_kind_of(node->code)->cost_class == COST_ATTENTION;
    const double kernels = attends ? cost_habits_of(m->profile)->attention_kernels : 1.0;
    return cost_ns_of(node_s(m, p, node, bound) + cost_habit_node_s(m, p, node, bound) +
                      kernels * cost_launch_s(m));
}

int64_t cost_floor_ns(const cost_model *m, double flops, double bytes, dtype type)
{
    const cluster_device *d = &m->c->device;
    const cluster_math math = cost_math_of(d, type);
    double share = d->gemm_share[math] > 0.0 ? d->gemm_share[math] : d->gemm_share[MATH_BF16];
    if (share <= 0.0) share = 1.0;
    share =
        fmax(share * m->profile->gemm,
             fmax(d->attention_forward_share, d->attention_backward_share) * m->profile->attention);
    double rate = d->peak_flops[math] * share;
    if (m->fp8 && type == DTYPE_BF16) {
        const double narrow = d->gemm_share[MATH_FP8];
        const double best = narrow > 0.0 ? narrow : d->gemm_share[MATH_BF16];
        rate = fmax(rate, d->peak_flops[MATH_FP8] * best * m->profile->gemm);
    }
    const double s = fmax(cost_over(flops, rate), cost_over(bytes, memory_rate(m)));
    return (int64_t)floor(s * 1e9);
}

int64_t cost_copy_ns(const cost_model *m, double bytes)
{
    return cost_ns_of(cost_over(bytes, m->c->node.host_bytes_s) + cost_launch_s(m));
}

int64_t cost_lost_bytes(const cost_profile *p, double activations, int64_t gradients, dtype type)
{
    const bool comes_and_goes = dtype_bytes(type) <= cost_habits_of(p)->loose_grads;
    return (int64_t)((activations + (comes_and_goes ? (double)gradients : 0.0)) * p->slack);
}
