/* SPDX-License-Identifier: Apache-2.0 */
/* All of Belay. */
#ifndef BELAY_BELAY_H
#define BELAY_BELAY_H

#include <stddef.h> /* NULL, for what has defaults */

#include <belay/amp.h>
#include <belay/context.h>
#include <belay/data.h>
#include <belay/debug.h>
#include <belay/devices.h>
#include <belay/dist.h>
#include <belay/dlpack.h>
#include <belay/fault.h>
#include <belay/grad.h>
#include <belay/kernel.h>
#include <belay/launch.h>
#include <belay/nn.h>
#include <belay/op.h>
#include <belay/optim.h>
#include <belay/tensor.h>
#include <belay/train.h>
#include <belay/types.h>

#endif
