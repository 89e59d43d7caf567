/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every optimizer's kernel, declared once: X(name). The list is expanded into the table of each
 * level, the dispatching functions tally__<name>_step, the declarations of tally__<name>_constants,
 * the tests and the benches. What each one computes is said in num/optim.h.
 */
#ifndef TALLY_NUM_OPTIM_LIST_H
#define TALLY_NUM_OPTIM_LIST_H

#define TALLY__OPTIM_LIST(X) X(sgd) X(adam) X(adagrad) X(rmsprop) X(adadelta) X(adamax) X(rprop)

#endif
