// Counts parameters from the sizes alone: all of them, and those that one token uses. The counts
// equal those of built models (a test checks all presets). For models that cannot be built yet
// (experts, latent attention) the planner uses these counts.
#include "model/model.h"

typedef struct sum {
    int64_t gemm, other; // in GEMMs; in norms and biases
} sum;

static sum attention_count(const decoder_spec *s)
{
    const int64_t d = s->dim, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const model_latent *l = &s->latent;
    if (l->kv_rank > 0) {
        const int64_t head = l->nope_dim + l->rope_dim;
        const int64_t queries =
            l->q_rank > 0 ? d * l->q_rank + l->q_rank * s->heads * head : d * s->heads * head;
        const int64_t narrow = d * (l->kv_rank + l->rope_dim);
        const int64_t wide = l->kv_rank * s->heads * (l->nope_dim + l->value_dim);
        int64_t other = l->q_rank + l->kv_rank;
        if (s->qkv_bias) other += l->q_rank + l->kv_rank + l->rope_dim;
        if (s->out_bias) other += d;
        return (sum){queries + narrow + wide + s->heads * l->value_dim * d, other};
    }
    sum n = {d * (q + 2 * kv) + q * d, s->sinks ? s->heads : 0};
    if (s->qkv_bias) n.other += q + 2 * kv;
    if (s->out_bias) n.other += d;
    if (s->qk_norm) n.other += s->qk_norm_whole ? q + kv : 2 * s->head_dim;
    return n;
}

static sum mlp_count(const decoder_spec *s, int64_t ffn_dim)
{
    const int64_t wide = s->mlp == MODEL_MLP_SWIGLU ? 2 * ffn_dim : ffn_dim;
    return (sum){s->dim * (wide + ffn_dim), s->mlp_bias ? wide + s->dim : 0};
}

static void add(sum *to, int64_t times, sum one)
{
    to->gemm += times * one.gemm;
    to->other += times * one.other;
}

void model_count(const decoder_spec *s, model_counts *out)
{
    const model_experts *e = &s->experts;
    const bool scores = s->scores != MODEL_WRITES;
    const int64_t table = s->vocab * s->dim, head = scores ? s->dim : table,
                  norm = s->norm_bias ? 2 * s->dim : s->dim;
    const int64_t positions = s->position == MODEL_POSITION_LEARNED ? s->context * s->dim : 0;
    const int64_t mixed = model_mixed_layers(s);
    sum expert = e->count > 0 ? mlp_count(s, e->ffn_dim) : (sum){0, 0};
    const int64_t layers = model_all_layers(s);
    const int64_t norms = s->norm_place == MODEL_NORM_AROUND ? 4 : 2; // of a layer
    sum all = {head, (norms * layers + 1) * norm};
    add(&all, layers, attention_count(s));
    add(&all, layers - mixed, mlp_count(s, s->ffn_dim));
    // Those above the last norm: a projection of two rows, three norms.
    add(&all, s->next_layers, (sum){2 * s->dim * s->dim, 3 * norm});
    if (mixed > 0) add(&all, mixed, mlp_count(s, model_shared_width(e)));
    all.gemm += mixed * e->count * s->dim; // routers
    if (e->shared_gate) all.gemm += mixed * s->dim;
    if (e->correction) all.other += mixed * e->count;
    if (e->bias) {
        all.other += mixed * e->count; // of routers
        expert.other += (s->mlp == MODEL_MLP_SWIGLU ? 2 : 1) * e->ffn_dim + s->dim;
    }
    sum seen = all, whole = all;
    add(&seen, mixed * e->top_k, expert);
    add(&whole, mixed * e->count, expert);
    const int64_t outside = positions + (s->tied && !scores ? 0 : table);
    out->total = whole.gemm + whole.other + outside;
    out->active = seen.gemm + seen.other + outside;
    out->gemm = seen.gemm + s->next_layers * head; // they go through the head too
}
