//! What is checked of the code itself: its layers.

mod layers;
