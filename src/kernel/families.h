/* SPDX-License-Identifier: Apache-2.0 */
/* Every family, once; read with BL_ROWS (and BL_ROW) defined.  A new family is a file and a line here. */
#include "kernel/activation.h"
#include "kernel/arith.h"
#include "kernel/bounds.h"
#include "kernel/compare.h"
#include "kernel/fill.h"
#include "kernel/index.h"
#include "kernel/lstm.h"
#include "kernel/move.h"
#include "kernel/norm.h"
#include "kernel/optim.h"
#include "kernel/reduce.h"
#include "kernel/softmax.h"
