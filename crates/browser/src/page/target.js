// target
