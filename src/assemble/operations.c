// The operations of a run against those of its backend.
#include "assemble/assemble.h"

static status program_check(const op_program *p, const kern_context *kernels, const char *where)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t n = 0; n < p->lists[list].count; n++) {
            const op_code code = p->lists[list].nodes[n].code;
            if (op_communicates(code) || kern_has(kernels, code)) continue;
            return fail(ST_UNSUPPORTED,
                        "device %s has no kernel for %s yet; change the setting that needs it, or "
                        "set kernels.device = cpu",
                        where, op_kind_of(code)->name);
        }
    }
    return ST_OK;
}

status assemble_plan_operations_check(const plan *p, const kern_context *kernels, const char *where)
{
    for (int64_t k = 0; k < p->binding_count; k++) {
        TRY(program_check(p->bindings[k].program, kernels, where));
    }
    return ST_OK;
}

status assemble_operations_check(const assemble_plans *plans, const char *where)
{
    for (int64_t i = 0; i < plans->count; i++) {
        TRY(assemble_plan_operations_check(plans->all[i], plans->kernels, where));
    }
    return ST_OK;
}
