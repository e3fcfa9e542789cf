package devca
