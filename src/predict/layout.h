// A layout with the parameters that a search varies.
#ifndef PREDICT_LAYOUT_H
#define PREDICT_LAYOUT_H

#include "predict/estimate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct search_layout {
    int32_t dp, tp, pp, cp;
    int32_t ep;         // ranks that share experts out; 0 is read as 1
    bool whole_experts; // as in plan_mesh
    int32_t chunks;     // per rank of pp; 1 where pp is 1
    int32_t zero;
    bool sp;
    op_recompute recompute;
    int32_t recompute_layers;      // number of decoder layers that recompute; 0: all
    const plan_schedule *schedule; // NULL where pp is 1
    int64_t micro_batch;
} search_layout;
static inline bool search_recompute_equals(const search_layout *l, op_recompute how, int32_t layers)
{
    return l->recompute == how && l->recompute_layers == layers;
}
bool search_layout_is_same(const search_layout *x, const search_layout *y);
// "dp 8 · tp 4 sp · pp 2 1f1b".
enum { SEARCH_NAME_BYTES = 96 };
const char *search_layout_name(const search_layout *l, char buffer[SEARCH_NAME_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
