package golden
