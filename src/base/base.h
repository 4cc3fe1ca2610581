// The headers that every floor includes: status and errors, element types, arenas.
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/arena.h"
#include "base/status.h"
#include "base/types.h"

#endif
