/* SPDX-License-Identifier: Apache-2.0 */
/* What the blocks of GPT-2 and the model around them share. */
#ifndef BL_NN_TRANSFORMER_H
#define BL_NN_TRANSFORMER_H

#include "nn/module.h"

/* GPT-2's first weights (Radford et al., 2019, as Hugging Face draws them). */
#define BL_GPT2_DEVIATION 0.02

#endif
