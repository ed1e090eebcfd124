#include "router/fleet/decode_model.h"

#include <gtest/gtest.h>

namespace kvring::router {
namespace {

// 9 ms to read the weights and 50 us a sequence: a sequence is charged its own part only.
TEST(DecodeModel, FixedPart_IsNobodysFault) {
  DecodeModel model;
  for (int i = 0; i < 200; ++i) model.Observe(i % 20 + 1, 9e-3 + 50e-6 * (i % 20 + 1));
  EXPECT_NEAR(model.SecondsPerSequence(), 50e-6, 2e-6);
}

TEST(DecodeModel, NothingToTellItFrom_IsZero) {
  DecodeModel model;
  EXPECT_EQ(model.SecondsPerSequence(), 0);
  for (int i = 0; i < 200; ++i) model.Observe(8, 9e-3);
  EXPECT_NEAR(model.SecondsPerSequence(), 0, 1e-9);
}

TEST(DecodeModel, NoFixedPart_WholeStepIsShared) {
  DecodeModel model;
  for (int i = 0; i < 500; ++i) model.Observe(i % 16, 1e-3 * (i % 16));
  EXPECT_NEAR(model.SecondsPerSequence(), 1e-3, 2e-5);
}

}  // namespace
}  // namespace kvring::router
