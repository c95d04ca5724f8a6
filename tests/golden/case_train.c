/* SPDX-License-Identifier: Apache-2.0 */
/* Whole training runs. */
#include "golden/golden.h"

const golden_op golden_train_ops[] = {
    {0},
};
