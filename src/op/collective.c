// Names of collective operations and reductions: one table each.
#include "op/collective.h"

#include <string.h>

static const char *const operations[COLLECTIVE_COUNT] = {
    [COLLECTIVE_ALL_REDUCE] = "all_reduce",   [COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
    [COLLECTIVE_ALL_GATHER] = "all_gather",   [COLLECTIVE_BROADCAST] = "broadcast",
    [COLLECTIVE_REDUCE] = "reduce",           [COLLECTIVE_GATHER] = "gather",
    [COLLECTIVE_SCATTER] = "scatter",         [COLLECTIVE_ALL_TO_ALL] = "all_to_all",
    [COLLECTIVE_ALL_TO_ALLV] = "all_to_allv", [COLLECTIVE_SEND] = "send",
    [COLLECTIVE_RECEIVE] = "receive",         [COLLECTIVE_BARRIER] = "barrier",
};

static const char *const reductions[REDUCTION_COUNT] = {
    [REDUCTION_SUM] = "sum",
    [REDUCTION_MAX] = "max",
    [REDUCTION_MIN] = "min",
    [REDUCTION_AVG] = "avg",
};

const char *op_collective_name(op_collective op)
{
    return (unsigned)op < COLLECTIVE_COUNT ? operations[op] : "?";
}

bool op_collective_parse(const char *name, op_collective *out)
{
    for (int i = 0; i < COLLECTIVE_COUNT; i++) {
        if (strcmp(operations[i], name) != 0) continue;
        *out = (op_collective)i;
        return true;
    }
    return false;
}

const char *op_reduction_name(op_reduction r)
{
    return (unsigned)r < REDUCTION_COUNT ? reductions[r] : "?";
}
