package proto
