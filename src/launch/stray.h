/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of one operation that lie on several devices: how that is refused, and where they are brought together when
 * the context's place is `move`. */
#ifndef BL_LAUNCH_STRAY_H
#define BL_LAUNCH_STRAY_H

#include "launch/prove.h"

/* Headline and hint of place.device: two tensors of `op` that lie apart. */
void bl_stray_describe(const belay_context *context, const char *op, const bl_given pair[2], bl_report_fault *fault);
/* Raises it. */
belay_code bl_stray_refuse(belay_context *context, const char *op, const bl_given pair[2]);

/* Whether all that are not nil lie at one place; else *other lies apart from *first. */
bool bl_stray_is_none(const belay_context *context, const belay_tensor *tensor, int n, int *first, int *other);
/* Where tensors come together: at the first parameter or buffer of a module, else at the first of all. */
int bl_stray_home(const belay_context *context, const belay_tensor *tensor, int n);
/* Counts a tensor that is copied to another place and says so once a site. */
void bl_stray_note(belay_context *context, const char *op, bl_given stray, int home);

#endif
