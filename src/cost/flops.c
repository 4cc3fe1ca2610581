// The table of FLOP conventions. A weight in a GEMM costs 6 FLOPs per token: 2 forward and 2 each
// for the gradients of input and weight. Attention's two GEMMs over a whole sequence cost 12 s per
// layer and unit of width; the half that a causal mask leaves costs 6 s. The 72 and 96 of
// Megatron's papers are 6 x 12 and 8 x 12 weights x dim^2 in a block with a feed-forward part of 4
// dim and as many key heads as query heads; the rows keep them as printed, also for models that
// differ, as their users do.
//
// To add a convention: a function, a row, and the published figures that it reproduces in
// flops_test.c.
#include "cost/flops.h"

#include <string.h>

static double causal(const flops_model *m, double s)
{
    return 6.0 * m->gemm_parameters + 6.0 * m->layers * m->attention_width * s;
}

static double nemo(const flops_model *m, double s)
{
    return 6.0 * m->gemm_parameters + 12.0 * m->layers * m->attention_width * s;
}

static double palm(const flops_model *m, double s)
{
    return 6.0 * m->parameters + 12.0 * m->layers * m->attention_width * s;
}

static double llm_foundry(const flops_model *m, double s)
{
    return 6.0 * m->parameters + 12.0 * m->layers * m->dim * s;
}

// per L h^2 (1 + s / (share h) + V / (12 L h)) for a head that is never recomputed, where per = 72
// (3 passes) or 96 (4 passes; then the head's part is V / (16 L h)).
static double model_72(const flops_model *m, double s)
{
    const double h = m->dim, l = m->layers;
    return 72.0 * l * h * h * (1.0 + s / (6.0 * h) + m->vocab / (12.0 * l * h));
}

static double selective_72(const flops_model *m, double s)
{
    const double h = m->dim, l = m->layers;
    return 72.0 * l * h * h * (1.0 + s / (3.0 * h) + m->vocab / (12.0 * l * h));
}

static double hardware_96(const flops_model *m, double s)
{
    const double h = m->dim, l = m->layers;
    return 96.0 * l * h * h * (1.0 + s / (6.0 * h) + m->vocab / (16.0 * l * h));
}

static const flops_rule rows[] = {
    {.name = "causal",
     .about =
         "6 x weights in GEMMs + 6 L s (heads x head size): the half of attention that a causal "
         "mask leaves; Trireme's, Megatron-Bridge's since 25.09",
     .token = causal},
    {.name = "nemo",
     .about =
         "6 x weights in GEMMs + 12 L s (heads x head size): all of attention; NeMo 24.07, nanotron",
     .token = nemo},
    {.name = "palm",
     .about = "6 N + 12 L H Q s, N with the embedding; PaLM, arXiv:2204.02311, appendix B",
     .token = palm},
    {.name = "llm-foundry",
     .about = "6 N + 12 L dim s, N with the embedding",
     .token = llm_foundry},
    {.name = "model-72",
     .about = "72 L h^2 (1 + s/6h + V/12Lh), model FLOPs; Korthikanti 2022, arXiv:2205.05198",
     .token = model_72},
    {.name = "selective-72",
     .about =
         "72 L h^2 (1 + s/3h + V/12Lh), the hardware FLOPs with attention recomputed, of the same",
     .recomputed = true,
     .token = selective_72},
    {.name = "hardware-96",
     .about = "96 L h^2 (1 + s/6h + V/16Lh), hardware FLOPs with all recomputed; Narayanan 2021, "
              "arXiv:2104.04473",
     .recomputed = true,
     .token = hardware_96},
};

const flops_rule *cost_flops_at(int row)
{
    return row >= 0 && row < COUNT_OF(rows) ? &rows[row] : NULL;
}

const flops_rule *cost_flops_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    }
    return NULL;
}

double cost_flops_rate(const flops_rule *rule, const flops_model *m, double seq, double batch,
                       double devices, double step_s)
{
    ASSERT(devices > 0.0 && step_s > 0.0);
    return rule->token(m, seq) * seq * batch / (devices * step_s);
}

double cost_flops_time_s(const flops_rule *rule, const flops_model *m, double seq, double tokens,
                         double devices, double rate)
{
    ASSERT(devices > 0.0 && rate > 0.0);
    return rule->token(m, seq) * tokens / (devices * rate);
}
