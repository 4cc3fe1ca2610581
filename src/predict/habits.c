// Effects of habits of other software on the plan of a step and on the bytes that it keeps in other
// types than our plans, or in addition. Between a layer's forward and its backward: bytes of every
// score of an attention that is not fused (the softmax, the mask of its dropout, the dropout's
// output), masks of the dropouts after attention and MLP, and inputs of GEMMs in fp8 instead of
// bf16; counted from the actions as layers x micro-batches between the two. At the loss: all logits
// of a micro-batch, if they do not go in chunks; all activations are alive at that moment too. For
// weights: those of GEMMs in fp8 only.
#include "predict/habits.h"

plan_unsharded_limits predict_habit_limits(const cost_profile *p)
{
    const cost_habits *h = cost_habits_of(p);
    return (plan_unsharded_limits){h->live_parameters, h->reduce_bucket};
}

bool predict_habit_rows_inline(const cost_profile *p)
{
    return !cost_habits_of(p)->beside;
}

bool predict_habit_whole_again(const cost_profile *p)
{
    return cost_habits_of(p)->whole_again;
}

double predict_habit_activations(const cost_profile *p, int64_t bytes)
{
    return (double)bytes * cost_habits_of(p)->activations;
}

bool predict_habit_adds_bytes(const cost_profile *p)
{
    const cost_habits *h = cost_habits_of(p);
    return h->activations != 1.0 || h->score_bytes != 0.0 || h->mask_bytes != 0.0 ||
           h->logit_bytes != 0.0 || h->fp8_inputs || h->fp8_weights || h->live_parameters != 0 ||
           h->reduce_bucket != 0;
}

// ---- additional bytes --------------------------------------------------------------------------

enum { KEPT_PROGRAMS = 64 }; // per model: layers differ only in their windows

static bool is_attention(const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    return kind->cost_class == COST_ATTENTION && kind->grad_of == GRAD_OF_NONE;
}

static bool is_attention_gradient(const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    return kind->cost_class == COST_ATTENTION && kind->grad_of != GRAD_OF_NONE;
}

static bool is_head(const op_node *node)
{
    return op_kind_of(node->code)->logits != LOGITS_NONE;
}

// Number of operations of this kind in an action.
static int32_t operations(const plan *p, const plan_action *x, bool (*is)(const op_node *node))
{
    const op_program *program = p->bindings[x->binding].program;
    int32_t count = 0;
    for (int32_t i = 0; i < x->ops_count; i++) {
        count += is(&program->lists[x->list].nodes[x->ops_begin + i]) ? 1 : 0;
    }
    return count;
}

static bool is_recomputed(const plan *p, const plan_action *x)
{
    const op_program *program = p->bindings[x->binding].program;
    const op_list list = OP_RECOMPUTE;
    for (int32_t i = 0; i < program->lists[list].count; i++) {
        if (is_attention(&program->lists[list].nodes[i])) return true;
    }
    return false;
}

// True if this action computes or recomputes the values between a tensor and its gradient.
static bool makes(const plan *p, const plan_action *x)
{
    return x->list == OP_RECOMPUTE || (x->list == OP_FORWARD && !is_recomputed(p, x));
}

static int64_t scores_kept(const predict_step *x, const plan *p)
{
    const run_config *r = x->of->r;
    int64_t live = 0, most = 0;
    const double score_bytes = cost_habits_of(&x->of->profile)->score_bytes;
    if (score_bytes <= 0.0) return 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *action = &p->actions[i];
        if (action->kind != ACTION_COMPUTE) continue;
        if (makes(p, action)) live += operations(p, action, is_attention);
        most = max_i64(most, live);
        live -= operations(p, action, is_attention_gradient);
    }
    const double scores = (double)x->of->spec.heads / (double)r->layout.tp * (double)r->train.seq *
                          (double)r->train.seq / (double)r->layout.cp * (double)x->micro_batch;
    return (int64_t)(scores * score_bytes * (double)most);
}

// ---- inputs of GEMMs ---------------------------------------------------------------------------

static bool is_weight_gemm(const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    return kind->gemm != NULL && kind->grad_of == GRAD_OF_WEIGHT;
}

// Counts the readers of tensor t after the forward: GEMMs for gradients of weights, also through a
// gather of it, and other operations.
static void readers_count(const op_program *p, tensor_id t, int32_t *gemms, int32_t *others)
{
    for (int list = OP_FORWARD + 1; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            for (int k = 0; k < OP_MAX_IN; k++) {
                if (node->in[k] == TENSOR_NONE || op_owner(p, node->in[k]).id != t) continue;
                if (list == OP_BACKWARD_WEIGHT && op_communicates(node->code)) {
                    readers_count(p, op_owner(p, node->out[0]).id, gemms, others);
                } else if (is_weight_gemm(node) && k == 1) {
                    ++*gemms;
                } else {
                    ++*others;
                }
            }
        }
    }
}

// Bytes of one layer and micro-batch relative to the plan: an input that only GEMMs read takes one
// byte per element instead of two; one that others read too takes a byte more. Recomputed tensors
// stay as they are.
static int64_t inputs_kept(const plan *p, const op_program *program)
{
    const extent_binding bound = plan_bound(p, p->micro_batch, 0);
    int64_t more = 0;
    for (tensor_id t = 0; t < program->tensor_count; t++) {
        const op_tensor *tensor = &program->tensors[t];
        int32_t gemms = 0, others = 0;
        if (tensor->view_of != TENSOR_NONE || tensor->type != DTYPE_BF16) continue;
        if (!op_list_makes(program, OP_FORWARD, t) || op_list_makes(program, OP_RECOMPUTE, t)) {
            continue;
        }
        readers_count(program, t, &gemms, &others);
        if (gemms == 0) continue;
        const int64_t elements = op_tensor_bytes(tensor, &bound) / 2;
        more += others == 0 ? -elements : elements;
    }
    return more;
}

static bool has_attention(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        if (is_attention(&p->lists[OP_FORWARD].nodes[i])) return true;
    }
    return false;
}

// Peak of `bytes` over each layer and micro-batch; negative if less is kept.
static int64_t layers_kept(const plan *p, const int64_t *bytes)
{
    int64_t live = 0, most = 0, least = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        if (x->kind != ACTION_COMPUTE || x->layer < 0) continue;
        const int64_t its = bytes[p->model->layers[x->layer].program];
        const op_program *program = p->bindings[x->binding].program;
        const bool ends = x->ops_begin + x->ops_count == program->lists[x->list].count;
        if (makes(p, x) && x->ops_begin == 0 && has_attention(program)) live += its;
        most = max_i64(most, live);
        least = min_i64(least, live);
        if (x->list == OP_BACKWARD_INPUT && ends && has_attention(program)) live -= its;
    }
    return most > 0 ? most : least;
}

static bool has_loss(const plan *p)
{
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        if (x->kind != ACTION_COMPUTE || x->microbatch > 0) continue;
        if (operations(p, x, is_head) > 0) return true;
    }
    return false;
}

static int64_t logits_kept(const predict_step *x, const plan *p)
{
    const cost_habits *h = cost_habits_of(&x->of->profile);
    const run_config *r = x->of->r;
    if (h->logit_bytes <= 0.0 || !has_loss(p)) return 0;
    const int64_t pieces = cost_has_all_logits(&x->of->profile) ? 1 : r->layout.tp;
    const double columns = (double)x->of->spec.vocab / (double)pieces;
    const double rows = (double)x->micro_batch * (double)r->train.seq / (double)r->layout.cp;
    return (int64_t)(rows * columns * h->logit_bytes);
}

int64_t predict_kept_bytes(const predict_step *x, int32_t stage)
{
    const plan *p = x->ranks[stage].p;
    const cost_habits *h = cost_habits_of(&x->of->profile);
    const run_config *r = x->of->r;
    int64_t bytes[KEPT_PROGRAMS] = {0};
    const bool fp8 = h->fp8_inputs && r->train.precision == RUN_FP8;
    const int64_t elements =
        p->micro_batch * (r->layout.sp ? p->seq_cut : p->seq) * x->of->spec.dim;
    const int64_t other = scores_kept(x, p) + logits_kept(x, p);
    if (!fp8 && h->mask_bytes <= 0.0) return other;
    for (int32_t i = 0; i < p->model->program_count && i < KEPT_PROGRAMS; i++) {
        bytes[i] = (int64_t)(h->mask_bytes * (double)elements);
        if (fp8) bytes[i] += inputs_kept(p, p->model->programs[i]);
    }
    return other + layers_kept(p, bytes);
}

int64_t predict_spared_weights(const predict_step *x, int32_t stage)
{
    const plan *p = x->ranks[stage].p;
    int64_t spared = 0;
    if (!cost_habits_of(&x->of->profile)->fp8_weights || x->of->r->train.precision != RUN_FP8)
        return 0;
    for (int64_t i = 0; i < p->run->count; i++) {
        const plan_tensor *t = &p->run->tensors[i];
        const bool kept = t->kind == PLAN_BYTES_WEIGHTS && t->weight >= 0 && t->type == DTYPE_BF16;
        if (kept && p->model->weights[t->weight].is_matrix) spared += t->bytes / 2;
    }
    return spared;
}
