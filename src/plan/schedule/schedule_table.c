// The table of schedules. A new one needs a file, a declaration in schedule_internal.h and a row
// here.
#include "plan/schedule/schedule_internal.h"

#include <string.h>

static const plan_schedule *const table[] = {
    &plan_schedule_gpipe,    &plan_schedule_1f1b,       &plan_schedule_interleaved,
    &plan_schedule_zb_h1,    &plan_schedule_zb_h2,      &plan_schedule_zb_v,
    &plan_schedule_dualpipe, &plan_schedule_dualpipe_v,
};

const plan_schedule *plan_schedule_at(int row)
{
    return row >= 0 && row < (int)COUNT_OF(table) ? table[row] : NULL;
}

const plan_schedule *plan_schedule_find(const char *name)
{
    for (int i = 0; i < (int)COUNT_OF(table); i++) {
        if (strcmp(table[i]->name, name) == 0) return table[i];
    }
    return NULL;
}
